//! The key of a route: read once, sent in one header, shown nowhere.

use std::path::PathBuf;

use super::RouteError;
use crate::config::RouteConfig;

/// A key. It has no `Debug` and no `Display`: it cannot slip into a message.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Reads the key that a route's configuration names; `None` where it names none.
    pub fn resolve(name: &str, config: &RouteConfig) -> Result<Option<Self>, RouteError> {
        let route = || name.to_owned();
        if let Some(variable) = &config.api_key_env {
            let missing = |_| RouteError::NoVariable { route: route(), variable: variable.clone() };
            let text = std::env::var(variable).map_err(missing)?;
            return Self::parse(name, &text, variable).map(Some);
        }
        let Some(credential) = &config.api_key_credential else { return Ok(None) };
        let Some(folder) = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from) else {
            return Err(RouteError::NoCredentials { route: route(), credential: credential.clone() });
        };
        let path = folder.join(credential);
        let text = std::fs::read_to_string(&path).map_err(|source| RouteError::Credential {
            route: route(),
            path: path.clone(),
            source,
        })?;
        Self::parse(name, &text, &path.display().to_string()).map(Some)
    }

    fn parse(route: &str, text: &str, from: &str) -> Result<Self, RouteError> {
        let key = text.trim_end_matches(['\n', '\r']);
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RouteError::Key { route: route.to_owned(), from: from.to_owned() });
        }
        Ok(Self(key.to_owned()))
    }

    /// The value of the `Authorization` header.
    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// `text` without the key, should a server have repeated it.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_loses_its_line_end_and_nothing_else() {
        let key = |text| ApiKey::parse("r", text, "K").map(|key| key.0).ok();

        assert_eq!(key("sk-1\n"), Some("sk-1".to_owned()));
        assert_eq!((key(""), key("\n"), key("a b"), key("a\nb"), key("ä")), (None, None, None, None, None));
    }
}

//! Where things are: an option, its variable, or the usual place (klbr(1)).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::verbs::Global;
use crate::id::SessionId;

/// The places and the session that a command is about.
#[derive(Debug, Clone)]
pub(super) struct Places {
    config: Option<PathBuf>,
    data: Option<PathBuf>,
    socket: PathBuf,
    session: Option<SessionId>,
}

impl Places {
    /// Takes what was given and fills up from the environment.
    pub(super) fn of(global: &Global) -> Result<Self, CliError> {
        let home = Homes::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
        Ok(Self {
            config: absolute(global.config.clone().or(home.config))?,
            data: absolute(global.data.clone().or(home.data))?,
            socket: global.socket.clone().unwrap_or(home.socket),
            session: global.session.clone(),
        })
    }

    /// The configuration file.
    pub(super) fn config(&self) -> Result<PathBuf, CliError> {
        self.config.clone().ok_or(CliError::NoPlace { what: "configuration file", option: "--config" })
    }

    /// The data directory.
    pub(super) fn data(&self) -> Result<PathBuf, CliError> {
        self.data.clone().ok_or(CliError::NoPlace { what: "data directory", option: "--data" })
    }

    /// The operator socket, as it was given: a short relative path may be the only one that fits.
    pub(super) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// The session that a command acts on.
    pub(super) fn session(&self) -> SessionId {
        self.session.clone().unwrap_or_else(SessionId::root)
    }

    /// The session that a command looks at, or all.
    pub(super) fn session_or_all(&self) -> Option<SessionId> {
        self.session.clone()
    }
}

fn absolute(path: Option<PathBuf>) -> Result<Option<PathBuf>, CliError> {
    path.map(|path| std::path::absolute(&path).map_err(|source| CliError::Path { path, source })).transpose()
}

/// The usual places of one environment.
#[derive(Debug, PartialEq)]
struct Homes {
    config: Option<PathBuf>,
    data: Option<PathBuf>,
    socket: PathBuf,
}

impl Homes {
    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        Self::where_there_is(variable, |log| log.exists())
    }

    fn where_there_is(variable: impl Fn(&str) -> Option<OsString>, exists: impl Fn(&Path) -> bool) -> Self {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let home = |below: &str| path("HOME").map(|home| home.join(below));
        let config = first(path("CONFIGURATION_DIRECTORY"))
            .or_else(|| path("XDG_CONFIG_HOME").or_else(|| home(".config")).map(|dir| dir.join("klbr")));
        let data = first(path("STATE_DIRECTORY"))
            .or_else(|| path("XDG_STATE_HOME").or_else(|| home(".local/state")).map(|dir| dir.join("klbr")));
        // Before version 254, systemd has a user's StateDirectory= below the configuration.
        let with_log = |dir: &Option<PathBuf>| dir.as_ref().is_some_and(|dir| exists(&dir.join("klbr.db")));
        let data = if !with_log(&data) && with_log(&config) { config.clone() } else { data };
        let of_system = PathBuf::from("/run/klbr.sock");
        let socket = match path("XDG_RUNTIME_DIR").map(|dir| dir.join("klbr.sock")) {
            // A user without a host of their own means that of the machine.
            Some(own) if exists(&own) || !exists(&of_system) => own,
            _ => of_system,
        };
        Self { config: config.map(|dir| dir.join("klbr.toml")), data, socket }
    }
}

/// A service manager joins several directories of a unit by colons; the first is the unit's own.
fn first(list: Option<PathBuf>) -> Option<PathBuf> {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let list = list?.into_os_string();
    let first = list.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
    Some(Path::new(&OsString::from_vec(first.to_vec())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(variables: &[(&str, &str)]) -> [Option<String>; 3] {
        let homes = Homes::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        });
        let shown = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
        [shown(homes.config), shown(homes.data), shown(Some(homes.socket))]
    }

    #[test]
    fn a_service_manager_goes_before_the_desktop_and_that_before_home() {
        let home = [("HOME", "/h")];
        let desktop =
            [("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "/r"), home[0]];
        let mut unit = desktop.to_vec();
        unit.extend([("CONFIGURATION_DIRECTORY", "/e/k:/other"), ("STATE_DIRECTORY", "/v/k")]);
        let expected = |places: [&str; 3]| places.map(|place| Some(place.to_owned()));

        assert_eq!(homes(&unit), expected(["/e/k/klbr.toml", "/v/k", "/r/klbr.sock"]));
        assert_eq!(homes(&desktop), expected(["/c/klbr/klbr.toml", "/s/klbr", "/r/klbr.sock"]));
        assert_eq!(
            homes(&home),
            expected(["/h/.config/klbr/klbr.toml", "/h/.local/state/klbr", "/run/klbr.sock"])
        );
    }

    #[test]
    fn the_log_is_found_where_an_old_service_manager_has_it() {
        let data = |log: &str| {
            let home = |name: &str| (name == "HOME").then(|| OsString::from("/h"));
            Homes::where_there_is(home, |path| path == Path::new(log)).data.unwrap()
        };
        assert_eq!(data("/h/.config/klbr/klbr.db"), Path::new("/h/.config/klbr"));
        assert_eq!(data("/h/.local/state/klbr/klbr.db"), Path::new("/h/.local/state/klbr"));
        assert_eq!(data("/nowhere"), Path::new("/h/.local/state/klbr"));
    }

    #[test]
    fn without_a_home_there_is_no_guess() {
        assert_eq!(homes(&[]), [None, None, Some("/run/klbr.sock".to_owned())]);
    }
}

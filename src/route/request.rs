//! The request's body: one JSON object, always the same bytes for the same question.

use serde_json::{Map, Value};

use super::{Question, RouteError};
use crate::config::RouteConfig;

/// Fields that the host writes itself.
const OWN_FIELDS: &[&str] = &["model", "messages", "tools", "tool_choice", "stream", "stream_options"];
/// Fields about a server's cache: only a profile that declares them may send them.
const CACHE_FIELDS: &[&str] =
    &["prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "cache_control"];

/// What every body of a route starts and ends with.
#[derive(Debug, Clone)]
pub(super) struct Template {
    model: String,
    options: Map<String, Value>,
}

impl Template {
    /// The template of a route's configuration.
    pub(super) fn new(name: &str, config: &RouteConfig) -> Result<Self, RouteError> {
        let route = || name.to_owned();
        let model =
            config.model.clone().ok_or_else(|| RouteError::Missing { route: route(), setting: "model" })?;
        let options = serde_json::to_value(&config.options)
            .map_err(|error| RouteError::Options { route: route(), problem: error.to_string() })?;
        let Value::Object(mut options) = options else {
            return Err(RouteError::Options { route: route(), problem: "they are not a table".to_owned() });
        };
        options.retain(|field, _| {
            !OWN_FIELDS.contains(&field.as_str()) && !CACHE_FIELDS.contains(&field.as_str())
        });
        Ok(Self { model, options })
    }

    /// The body that asks a question. The messages and tools stand in it byte for byte.
    pub(super) fn body(&self, question: &Question) -> String {
        let mut body = String::with_capacity(question.messages.len() + question.tools.len() + 512);
        body.push_str("{\"model\":");
        body.push_str(&Value::from(self.model.as_str()).to_string());
        body.push_str(",\"messages\":");
        body.push_str(&question.messages);
        if !question.tools.is_empty() {
            body.push_str(",\"tools\":");
            body.push_str(question.tools);
            body.push_str(",\"tool_choice\":\"auto\"");
        }
        body.push_str(",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        for (field, value) in &self.options {
            body.push(',');
            body.push_str(&Value::from(field.as_str()).to_string());
            body.push(':');
            body.push_str(&value.to_string());
        }
        body.push('}');
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    #[test]
    fn a_body_is_these_bytes() {
        let text = r#"
            workspace = "/w"
            route.use = "r"
            [routes.r]
            base_url = "http://h/v1"
            model = "m"
            [routes.r.options]
            temperature = 0
            a = { b = [1, "x"] }
            stream = false
            prompt_cache_key = "k"
        "#;
        let config = Config::parse(text, Path::new("/klbr.toml")).unwrap();
        let template = Template::new("r", &config.routes["r"]).unwrap();
        let question = Question {
            messages: r#"[{"role":"user"}]"#.into(),
            tools: r#"[{"t":1}]"#,
            latest: vec![],
            answered: 0,
        };

        assert_eq!(
            template.body(&question),
            concat!(
                r#"{"model":"m","messages":[{"role":"user"}],"tools":[{"t":1}],"tool_choice":"auto","#,
                r#""stream":true,"stream_options":{"include_usage":true},"a":{"b":[1,"x"]},"temperature":0}"#
            )
        );
    }
}

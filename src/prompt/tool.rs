//! The one tool, as constant bytes: its text is part of every request's prefix.

use serde::Deserialize;

/// The tool's name.
pub const NAME: &str = "python";

/// The `tools` field of every request.
pub const TOOLS_JSON: &str = r#"[{"type":"function","function":{"name":"python","description":"Run a cell of Python in your persistent workbench and see what it prints and its last value.","parameters":{"type":"object","properties":{"code":{"type":"string","description":"The cell's source."}},"required":["code"],"additionalProperties":false}}}]"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    code: String,
}

/// The cell that a call asks for, or what is wrong with the call in words for the model.
pub fn cell_of(name: &str, arguments: &str) -> Result<String, String> {
    if name != NAME {
        return Err(format!("there is no tool {name:?}; the only tool is `{NAME}`. Nothing was run."));
    }
    let parsed: Result<Arguments, _> = serde_json::from_str(arguments);
    let code = parsed
        .map_err(|error| {
            format!(
                "the arguments are not {{\"code\": \"...\"}}: {error}. They have {} bytes. Nothing was run.",
                arguments.len()
            )
        })?
        .code;
    if code.len() > crate::limits::CODE_BYTES_MAX {
        return Err(format!(
            "the cell has {} bytes, the limit is {}. Nothing was run.",
            code.len(),
            crate::limits::CODE_BYTES_MAX
        ));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_text_is_json_and_names_the_tool() {
        let tools: serde_json::Value = serde_json::from_str(TOOLS_JSON).unwrap();

        assert_eq!(tools[0]["function"]["name"], NAME);
    }

    #[test]
    fn a_call_is_a_cell_or_says_what_is_wrong_with_it() {
        assert_eq!(cell_of("python", r#"{"code":"1+1"}"#).as_deref(), Ok("1+1"));
        assert!(cell_of("shell", "{}").unwrap_err().contains("no tool \"shell\""));
        assert!(cell_of("python", r#"{"code":"1+"#).unwrap_err().contains("EOF"));
        assert!(cell_of("python", r#"{"cmd":"ls"}"#).unwrap_err().contains("cmd"));
    }

    #[test]
    fn the_bound_of_a_cell_has_two_sides() {
        let call = |bytes| cell_of("python", &serde_json::json!({"code": "#".repeat(bytes)}).to_string());

        assert!(call(crate::limits::CODE_BYTES_MAX).is_ok());
        assert!(call(crate::limits::CODE_BYTES_MAX + 1).unwrap_err().contains("262144"));
    }
}

//! What differs between the configuration in force and one that was read again.

use super::Config;

/// Names of changed settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that are in force from now on.
    pub in_force: Vec<String>,
    /// Those that need a restart.
    pub need_restart: Vec<String>,
}

impl Config {
    /// Takes over what can change while a host runs, and says what differs.
    pub fn take_over(&mut self, new: Self) -> Changes {
        let at_once = [
            ("route", self.route != new.route),
            ("routes", self.routes != new.routes),
            ("final_text", self.final_text != new.final_text),
            ("limits", self.limits != new.limits),
        ];
        let later = [
            ("workspace", self.workspace != new.workspace),
            ("containment", self.containment != new.containment),
            ("python", self.python != new.python),
            ("python_path", self.python_path != new.python_path),
            ("sandbox", self.sandbox != new.sandbox),
        ];
        let names = |list: &[(&str, bool)]| {
            list.iter().filter(|(_, differs)| *differs).map(|(name, _)| (*name).to_owned()).collect()
        };
        let changes = Changes { in_force: names(&at_once), need_restart: names(&later) };
        (self.route, self.routes, self.final_text, self.limits) =
            (new.route, new.routes, new.final_text, new.limits);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const BASE: &str = "workspace = \"/w\"\n[route]\nuse = \"me\"\n[routes.me]\nkind = \"manual\"\n";

    fn parse(text: &str) -> Config {
        Config::parse(text, Path::new("/etc/klbr.toml")).unwrap()
    }

    #[test]
    fn what_needs_a_restart_is_said_again_until_there_is_one() {
        let mut config = parse(BASE);
        let text = format!(
            "final_text = \"record\"\npython = \"/p\"\n{BASE}[limits]\ncell_ms = 5\n[sandbox]\nnetwork = false\n"
        );
        let first = config.take_over(parse(&text));
        let second = config.take_over(parse(&text));

        assert_eq!(first.in_force, ["final_text", "limits"]);
        assert_eq!(first.need_restart, ["python", "sandbox"]);
        assert_eq!(second, Changes { in_force: vec![], ..first });
        assert_eq!(config.limits.cell_ms, 5);
        assert!(config.sandbox.network);
    }
}

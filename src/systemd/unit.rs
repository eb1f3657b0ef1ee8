//! The unit that this process is, as its control group tells.

/// The service of the user's manager that this process is in.
pub fn own_user_unit() -> Option<String> {
    user_unit_in(&std::fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The service named by a line of `/proc/PID/cgroup` such as
/// `0::/user.slice/user-1000.slice/user@1000.service/app.slice/klbr.service`.
fn user_unit_in(listed: &str) -> Option<String> {
    let group = listed.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut parts = group.split('/').skip_while(|part| !part.starts_with("user@"));
    let _manager = parts.next()?;
    parts.find(|part| part.ends_with(".service")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_below_the_users_manager_is_one() {
        let user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/";
        let cases = [
            (format!("{user}klbr.service\n"), Some("klbr.service")),
            (format!("1:name=systemd:/x\n{user}klbr.service/below"), Some("klbr.service")),
            (format!("{user}app-terminal-12.scope"), None),
            ("0::/user.slice/user-1000.slice/session-3.scope".to_owned(), None),
            ("0::/system.slice/klbr.service".to_owned(), None),
            ("0::/".to_owned(), None),
            (String::new(), None),
        ];
        for (listed, expected) in cases {
            assert_eq!(user_unit_in(&listed).as_deref(), expected, "{listed}");
        }
    }
}

//! The unit that this process is, as its control group tells.

/// A service of one of the two managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnUnit {
    /// Of the user's manager.
    User(String),
    /// Of the system's manager.
    System(String),
}

/// The service that this process is in.
pub fn own() -> Option<OwnUnit> {
    unit_in(&std::fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The service named by a line of `/proc/PID/cgroup` such as
/// `0::/user.slice/user-1000.slice/user@1000.service/app.slice/klbr.service`.
fn unit_in(listed: &str) -> Option<OwnUnit> {
    let group = listed.lines().find_map(|line| line.strip_prefix("0::"))?;
    let is_service = |part: &&str| part.ends_with(".service");
    let mut parts = group.split('/').skip_while(|part| !part.starts_with("user@"));
    if parts.next().is_some() {
        return parts.find(is_service).map(|name| OwnUnit::User(name.to_owned()));
    }
    group.split('/').find(is_service).map(|name| OwnUnit::System(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_its_managers() {
        let user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/";
        let of_user = |name: &str| Some(OwnUnit::User(name.to_owned()));
        let of_system = |name: &str| Some(OwnUnit::System(name.to_owned()));
        let cases = [
            (format!("{user}klbr.service\n"), of_user("klbr.service")),
            (format!("1:name=systemd:/x\n{user}klbr.service/below"), of_user("klbr.service")),
            (format!("{user}app-terminal-12.scope"), None),
            ("0::/user.slice/user-1000.slice/session-3.scope".to_owned(), None),
            ("0::/system.slice/klbr.service".to_owned(), of_system("klbr.service")),
            ("0::/system.slice/klbr.service/below".to_owned(), of_system("klbr.service")),
            ("0::/".to_owned(), None),
            (String::new(), None),
        ];
        for (listed, expected) in cases {
            assert_eq!(unit_in(&listed), expected, "{listed}");
        }
    }
}

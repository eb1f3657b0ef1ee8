//! A service manager, over its bus (org.freedesktop.systemd1(5)).

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Mutex;
use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, Value};

use super::super::{ContainmentError, Exit};

pub(super) const DESTINATION: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(super) const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// Longest time for a unit's start job.
const START_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks at a start job.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// The signal of a hard stop.
const SIGKILL: i32 = 9;
/// What the manager calls the end of a unit of which the kernel killed a process for its memory.
const OUT_OF_MEMORY: &str = "oom-kill";
/// `CLD_EXITED` of waitid(2), which ExecMainCode has.
const EXITED: i32 = 1;
/// `EXIT_USER` of systemd.exec(5): no user namespace, or no such user.
const USER: i32 = 217;
/// `EXIT_NAMESPACE` of systemd.exec(5).
const NAMESPACE: i32 = 226;

/// Where the system's bus is.
const SYSTEM_BUS: &str = "unix:path=/run/dbus/system_bus_socket";
/// What to do without a manager of one's own.
const USER_REMEDY: &str =
    "log in with a session, or run `loginctl enable-linger`, or set containment = \"process\"";

/// Whose manager.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bus {
    /// That of the user who runs this.
    User,
    /// That of the machine.
    System,
}

/// The manager. A connection that is lost is made again.
pub(super) struct Manager {
    address: String,
    connection: Mutex<Option<Connection>>,
}

/// Properties of a unit to be started.
pub(super) type Properties<'a> = Vec<(&'static str, Value<'a>)>;

impl Manager {
    /// Connects to a bus.
    pub(super) async fn connect(bus: Bus) -> Result<Self, ContainmentError> {
        let (address, remedy) = match bus {
            Bus::User => (bus_address()?, USER_REMEDY),
            Bus::System => (SYSTEM_BUS.to_owned(), "the system's bus is needed (apt install dbus)"),
        };
        let manager = Self { address, connection: Mutex::new(None) };
        let no_answer = |error: &ContainmentError| ContainmentError::NoManager {
            why: format!("it does not answer ({})", chain(error)),
            remedy,
        };
        manager.environment().await.map_err(|error| no_answer(&error))?;
        Ok(manager)
    }

    pub(super) async fn connection(&self) -> Result<Connection, zbus::Error> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = &*held {
            return Ok(connection.clone());
        }
        let connection = zbus::connection::Builder::address(self.address.as_str())?.build().await?;
        *held = Some(connection.clone());
        Ok(connection)
    }

    /// Calls a method; once more on a new connection where the old one is gone.
    async fn call<B>(
        &self,
        doing: &'static str,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<zbus::Message, ContainmentError>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let mut is_second = false;
        loop {
            let outcome = match self.connection().await {
                Ok(connection) => {
                    connection.call_method(Some(DESTINATION), path, Some(interface), method, body).await
                }
                Err(error) => Err(error),
            };
            match outcome {
                Ok(reply) => return Ok(reply),
                Err(zbus::Error::InputOutput(_)) if !is_second => {
                    *self.connection.lock().await = None;
                    is_second = true;
                }
                Err(error) => return Err(ContainmentError::Manager { doing, source: Box::new(error) }),
            }
        }
    }

    async fn property<T>(
        &self,
        doing: &'static str,
        path: &str,
        interface: &str,
        name: &str,
    ) -> Result<T, ContainmentError>
    where
        T: TryFrom<zbus::zvariant::OwnedValue>,
        T::Error: Into<zbus::zvariant::Error>,
    {
        let reply =
            self.call(doing, path, "org.freedesktop.DBus.Properties", "Get", &(interface, name)).await?;
        let wrong = |error: zbus::Error| ContainmentError::Manager { doing, source: Box::new(error) };
        let value: zbus::zvariant::OwnedValue = reply.body().deserialize().map_err(wrong)?;
        T::try_from(value).map_err(|error| wrong(zbus::Error::Variant(error.into())))
    }

    /// The manager's version: 252 of `252.39-1~deb12u1`. One that says nothing is an old one.
    pub(super) async fn version(&self) -> Result<u32, ContainmentError> {
        let text: String = self.property("say its version", PATH, MANAGER, "Version").await?;
        let digits: String = text.trim_start_matches('v').chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse().unwrap_or(0))
    }

    /// The variables that the manager gives to every unit.
    pub(super) async fn environment(&self) -> Result<Vec<String>, ContainmentError> {
        self.property("say its environment", PATH, MANAGER, "Environment").await
    }

    async fn path_of(&self, name: &str) -> Result<String, ContainmentError> {
        self.object("find a unit", "GetUnit", &name).await
    }

    /// The path of the object that a method of the manager names.
    async fn object<B>(&self, doing: &'static str, method: &str, body: &B) -> Result<String, ContainmentError>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let reply = self.call(doing, PATH, MANAGER, method, body).await?;
        let path: OwnedObjectPath = reply
            .body()
            .deserialize()
            .map_err(|error| ContainmentError::Manager { doing, source: Box::new(error) })?;
        Ok(path.to_string())
    }

    /// The unit that a process is in: its object's path and its name.
    pub(super) async fn unit_of(&self, pid: u32) -> Result<(String, String), ContainmentError> {
        let doing = "say which unit a process is in";
        let path = self.object(doing, "GetUnitByPID", &pid).await?;
        let name = self.property(doing, &path, UNIT, "Id").await?;
        Ok((path, name))
    }

    /// Has the manager tell of changes to all who listen.
    pub(super) async fn subscribe(&self) {
        // One that does so already says so by an error.
        let _ = self.call("tell of changes", PATH, MANAGER, "Subscribe", &()).await;
    }

    /// Starts a transient service and waits until its program runs.
    pub(super) async fn start(&self, name: &str, properties: Properties<'_>) -> Result<(), ContainmentError> {
        let none: Vec<(&str, Vec<(&str, Value<'_>)>)> = vec![];
        let body = (name, "fail", properties, none);
        self.call("start a unit", PATH, MANAGER, "StartTransientUnit", &body).await?;
        let path = self.path_of(name).await?;
        let end = tokio::time::Instant::now() + START_MAX;
        let mut pause = LOOK_PAUSE;
        loop {
            let state: String = self.property("say a unit's state", &path, UNIT, "ActiveState").await?;
            match state.as_str() {
                "active" => return Ok(()),
                // It has run already, and ended well.
                "inactive" | "deactivating" => return Ok(()),
                "failed" => {
                    let result: String = self.property("say a result", &path, SERVICE, "Result").await?;
                    let status: i32 = self.property("say a status", &path, SERVICE, "ExecMainStatus").await?;
                    // A program that ran and failed has its own words; one that never ran has a status of the manager's.
                    if result != "exit-code" || (200..=243).contains(&status) {
                        self.forget(name).await;
                        let why = not_set_up(status);
                        let result =
                            format!("{result}, status {status}{why} (systemd.exec(5), PROCESS EXIT CODES)");
                        return Err(ContainmentError::Failed { unit: name.to_owned(), result });
                    }
                    return Ok(());
                }
                _ if tokio::time::Instant::now() > end => {
                    self.forget(name).await;
                    let result = format!("it is still {state} after {} s", START_MAX.as_secs());
                    return Err(ContainmentError::Failed { unit: name.to_owned(), result });
                }
                _ => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
            }
        }
    }

    /// The name of a unit's control group; empty where it has none any more.
    pub(super) async fn control_group(&self, name: &str) -> Result<String, ContainmentError> {
        let path = self.path_of(name).await?;
        self.property("say a unit's control group", &path, SERVICE, "ControlGroup").await
    }

    /// The variables that a unit was started with.
    pub(super) async fn environment_of(&self, name: &str) -> Result<Vec<String>, ContainmentError> {
        let path = self.path_of(name).await?;
        self.property("say a unit's environment", &path, SERVICE, "Environment").await
    }

    /// How long a service has for its stop; `None` for as long as it takes, and where nobody knows.
    pub(super) async fn stop_timeout_of(&self, name: Option<&str>) -> Option<Duration> {
        let path = self.path_of(name?).await.ok()?;
        let given: u64 = self.property("say a timeout", &path, SERVICE, "TimeoutStopUSec").await.ok()?;
        (given != u64::MAX).then(|| Duration::from_micros(given))
    }

    /// The units with names like this pattern.
    pub(super) async fn units_like(&self, pattern: &str) -> Result<Vec<String>, ContainmentError> {
        type Listed =
            (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);
        let doing = "list units";
        let body = (Vec::<&str>::new(), vec![pattern]);
        let reply = self.call(doing, PATH, MANAGER, "ListUnitsByPatterns", &body).await?;
        let listed: Vec<Listed> = reply
            .body()
            .deserialize()
            .map_err(|error| ContainmentError::Manager { doing, source: Box::new(error) })?;
        Ok(listed.into_iter().map(|unit| unit.0).collect())
    }

    /// How a unit's program ended; nothing where the manager does not know.
    pub(super) async fn exit_of(&self, name: &str) -> Exit {
        self.try_exit_of(name).await.unwrap_or_else(|error| {
            tracing::warn!(klbr_unit = name, "how it ended is not known: {}", chain(&error));
            Exit::default()
        })
    }

    async fn try_exit_of(&self, name: &str) -> Result<Exit, ContainmentError> {
        let path = self.path_of(name).await?;
        // The group is empty before the manager has heard of it.
        for _ in 0..200 {
            let code: i32 = self.property("say an end", &path, SERVICE, "ExecMainCode").await?;
            if code != 0 {
                let status: i32 = self.property("say a status", &path, SERVICE, "ExecMainStatus").await?;
                let result: String = self.property("say a result", &path, SERVICE, "Result").await?;
                return Ok(exit(code, status, &result));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Exit::default())
    }

    /// Has the manager kill all processes of a unit.
    pub(super) async fn kill(&self, name: &str) -> Result<(), ContainmentError> {
        self.call("kill a unit", PATH, MANAGER, "KillUnit", &(name, "all", SIGKILL)).await.map(drop)
    }

    /// Lets the manager forget a unit that has ended.
    pub(super) async fn forget(&self, name: &str) {
        // One that it has forgotten already is what was wanted.
        let _ = self.call("let go of a unit", PATH, MANAGER, "UnrefUnit", &name).await;
        let _ = self.call("reset a unit", PATH, MANAGER, "ResetFailedUnit", &name).await;
    }
}

/// An end as `ExecMainCode`, `ExecMainStatus` and `Result` tell it.
pub(super) fn exit(code: i32, status: i32, result: &str) -> Exit {
    let (code, signal) = if code == EXITED { (Some(status), None) } else { (None, Some(status)) };
    Exit { code, signal, out_of_memory: result == OUT_OF_MEMORY }
}

/// What most often keeps the manager from setting up a process, by the status it gives then.
const fn not_set_up(status: i32) -> &'static str {
    match status {
        USER => {
            ": this user may have no user namespaces; see user.max_user_namespaces and kernel.unprivileged_userns_clone"
        }
        NAMESPACE => ": a mount namespace could not be set up",
        _ => "",
    }
}

/// Where the user's bus is.
fn bus_address() -> Result<String, ContainmentError> {
    if let Ok(address) = std::env::var("DBUS_SESSION_BUS_ADDRESS") {
        if !address.is_empty() {
            return Ok(address);
        }
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw())),
        PathBuf::from,
    );
    let bus = runtime.join("bus");
    if bus.exists() {
        return Ok(format!("unix:path={}", bus.display()));
    }
    Err(ContainmentError::NoManager { why: format!("there is no {}", bus.display()), remedy: USER_REMEDY })
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

//! How a unit ended whose manager forgets it at that moment: what it tells of it while it lives.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use zbus::MessageStream;
use zbus::export::futures_core::Stream as _;
use zbus::zvariant::OwnedValue;

use super::super::{ContainmentError, Exit};
use super::bus::{DESTINATION, Manager, SERVICE, exit};

/// The manager's word comes after the control group's.
const LAST_WORD_MAX: Duration = Duration::from_secs(2);
/// Changes of one unit that may wait; the manager tells of a handful in its life.
const CHANGES_MAX: usize = 64;

/// The changes of one unit.
pub(super) struct Ends {
    changes: MessageStream,
}

impl Ends {
    /// Listens to what becomes of the unit with this object.
    pub(super) async fn of(manager: &Manager, path: &str) -> Result<Self, ContainmentError> {
        let doing = "tell of a unit's end";
        let wrong = |error: zbus::Error| ContainmentError::Manager { doing, source: Box::new(error) };
        let rule = zbus::MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender(DESTINATION)
            .and_then(|rule| rule.interface("org.freedesktop.DBus.Properties"))
            .and_then(|rule| rule.member("PropertiesChanged"))
            .and_then(|rule| rule.path(path))
            .map_err(wrong)?
            .build();
        manager.subscribe().await;
        let connection = manager.connection().await.map_err(wrong)?;
        let changes =
            MessageStream::for_match_rule(rule, &connection, Some(CHANGES_MAX)).await.map_err(wrong)?;
        Ok(Self { changes })
    }

    /// How its program ended; nothing where the manager does not say.
    pub(super) async fn exit(&mut self) -> Exit {
        tokio::time::timeout(LAST_WORD_MAX, self.heard()).await.unwrap_or_default()
    }

    async fn heard(&mut self) -> Exit {
        while let Some(change) = poll_fn(|context| Pin::new(&mut self.changes).poll_next(context)).await {
            let Ok(change) = change else { continue };
            let body = change.body();
            let Ok((interface, values, _)) =
                body.deserialize::<(String, HashMap<String, OwnedValue>, Vec<String>)>()
            else {
                continue;
            };
            let number = |name: &str| values.get(name).and_then(|value| i32::try_from(value).ok());
            let (Some(code), Some(status)) = (number("ExecMainCode"), number("ExecMainStatus")) else {
                continue;
            };
            if interface != SERVICE || code == 0 {
                continue;
            }
            let result = values.get("Result").and_then(|value| <&str>::try_from(value).ok());
            return exit(code, status, result.unwrap_or_default());
        }
        Exit::default()
    }
}

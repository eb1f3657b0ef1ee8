//! Reaching the host, which a service manager may have to start first, and may fail to.

use std::time::Duration;

use super::error::CliError;
use super::places::Places;
use super::show;
use crate::operator::client::Connection;

/// Silence after which a person is told where to look.
const SILENCE_TOLD: Duration = Duration::from_secs(5);
/// Silence after which nobody waits any more: a host that starts says so to its manager, and to us.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Connects, and waits until a host answers.
///
/// A socket that a service manager holds takes the connection whether or not there is a host behind it.
pub(super) async fn open(places: &Places) -> Result<Connection, CliError> {
    let path = places.socket();
    let mut connection = Connection::open(&path).await?;
    if let Ok(answered) = tokio::time::timeout(SILENCE_TOLD, connection.answers()).await {
        answered?;
        return Ok(connection);
    }
    show::complain(&format!(
        "no answer yet at {}: the host is starting, or cannot start; see `journalctl --user -u klbr` and \
         `klbr doctor`",
        path.display()
    ));
    // The call was sent: its answer is what is waited for.
    match tokio::time::timeout(SILENCE_MAX - SILENCE_TOLD, connection.reply::<serde_json::Value>()).await {
        Ok(answered) => answered?,
        Err(_) => return Err(CliError::TimedOut { what: "the start of the host", after: SILENCE_MAX }),
    };
    Ok(connection)
}

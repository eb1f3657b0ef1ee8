//! Where a session goes on after the host was restarted.

use super::turn::Point;
use crate::event::{Body, Event};
use crate::id::{EventId, SessionId};
use crate::store::{EventFilter, Snapshot, StoreError};

/// The open turn and its point, if a turn is open. Everything that was open has been closed.
pub(super) fn point(
    snapshot: &Snapshot<'_>,
    session: &SessionId,
) -> Result<Option<(u64, Point)>, StoreError> {
    let Some(open) = snapshot.session(session)?.and_then(|row| row.turn) else { return Ok(None) };
    Ok(Some(match last_answer(snapshot, session)? {
        Some((response, text)) => (open.turn, Point::Finish(response, text)),
        None => (open.turn, Point::Ask),
    }))
}

/// The response that ends the open turn, where its last step is one without a call and no request
/// came after it.
pub(super) fn last_answer(
    snapshot: &Snapshot<'_>,
    session: &SessionId,
) -> Result<Option<(EventId, String)>, StoreError> {
    let Some(open) = snapshot.session(session)?.and_then(|row| row.turn) else { return Ok(None) };
    let filter = EventFilter {
        session: Some(session.clone()),
        kinds: vec!["step.ended".to_owned(), "model.requested".to_owned()],
    };
    let newest = snapshot.events_before(EventId(i64::MAX), &filter, 1)?;
    let Some(Event { body: Body::StepEnded(step), .. }) = newest.into_iter().next() else { return Ok(None) };
    if step.turn != open.turn || !step.results.is_empty() {
        return Ok(None);
    }
    match snapshot.event(step.response)?.map(|event| event.body) {
        Some(Body::ModelResponded(response)) => Ok(Some((step.response, response.text))),
        _ => Ok(None),
    }
}

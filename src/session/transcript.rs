//! The session's transcript as it stands in memory: the assembled request, and what the log has
//! added since.

use super::SessionError;
use crate::event::{Body, CallResult, Event};
use crate::id::{EventId, SessionId};
use crate::prompt::{Assembly, Sequence, frame};
use crate::route::Latest;
use crate::store::{Block, Snapshot};

/// A transcript, up to block `seq`.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    assembly: Assembly,
    seq: i64,
    /// What entered since the model's last response.
    latest: Vec<Latest>,
    /// The request that was last made of it, if this process made one.
    pub(super) requested: Option<Sequence>,
}

impl Transcript {
    /// An empty transcript under this header text.
    pub(super) fn new(header: &str) -> Self {
        Self { assembly: Assembly::new(header), ..Self::default() }
    }

    /// Takes up the blocks that the log has and this does not.
    pub(super) fn catch_up(
        &mut self,
        snapshot: &Snapshot<'_>,
        session: &SessionId,
    ) -> Result<(), SessionError> {
        for block in snapshot.transcript(session, self.seq)? {
            self.take(snapshot, &block)?;
            self.seq = block.seq;
        }
        Ok(())
    }

    /// Takes up an event that enters with the request that is being made.
    pub(super) fn adopt(&mut self, event: &Event) -> Result<(), SessionError> {
        self.push(event)?;
        self.seq += 1;
        Ok(())
    }

    fn take(&mut self, snapshot: &Snapshot<'_>, block: &Block) -> Result<(), SessionError> {
        let event = event(snapshot, block.event)?;
        let Some(call) = block.call else { return self.push(&event) };
        match &event.body {
            Body::CellCompleted(cell) => {
                self.assembly.push_cell(event.id, event.at_ms, call, cell)?;
                self.latest.push(Latest::CellResult {
                    status: cell.status,
                    output: cell.output.clone(),
                    error: cell.error.clone(),
                });
            }
            Body::StepEnded(step) => {
                let Some(CallResult::Refused { message }) = step.results.get(call) else {
                    return Err(SessionError::Inconsistent(format!(
                        "{} has no refusal of call {call}",
                        event.id.reference()
                    )));
                };
                self.assembly.push_refusal(event.id, event.at_ms, call, message)?;
                self.latest.push(Latest::Note { text: message.clone() });
            }
            other => {
                return Err(SessionError::Inconsistent(format!(
                    "{} ({}) is not the result of a call",
                    event.id.reference(),
                    other.kind()
                )));
            }
        }
        Ok(())
    }

    fn push(&mut self, event: &Event) -> Result<(), SessionError> {
        self.assembly.push_event(event)?;
        match &event.body {
            Body::ModelResponded(_) => self.latest.clear(),
            Body::OperatorInput(input) => self.latest.push(Latest::Input { text: input.text.clone() }),
            Body::Wake(wake) => self.latest.push(Latest::Wake { text: frame::wake(event.at_ms, wake) }),
            Body::GenerationEnded(ended) => {
                self.latest.push(Latest::Note { text: frame::generation_ended(event.at_ms, ended) });
            }
            // `push_event` has refused every other kind.
            _ => {}
        }
        Ok(())
    }

    /// Whether the next request extends the earlier one, byte for byte.
    pub(super) fn extends(&self, earlier: &Sequence) -> bool {
        // What this process assembled itself only ever grew.
        self.requested.as_ref() == Some(earlier) || self.assembly.extends(earlier)
    }

    /// Length and digest of the request.
    pub(super) fn sequence(&self) -> Sequence {
        self.assembly.sequence()
    }

    /// The `messages` field of the request.
    pub(super) fn messages(&self) -> String {
        self.assembly.messages()
    }

    /// What entered since the model's last response.
    pub(super) fn latest(&self) -> Vec<Latest> {
        self.latest.clone()
    }
}

/// An event that must be there.
pub(super) fn event(snapshot: &Snapshot<'_>, id: EventId) -> Result<Event, SessionError> {
    snapshot.event(id)?.ok_or_else(|| SessionError::Inconsistent(format!("{} is missing", id.reference())))
}

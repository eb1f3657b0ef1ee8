//! The hook worker's side of the log: numbers for its generations, their beginnings and ends.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::generation::{Workshop, ended_event};
use crate::cell::Role;
use crate::event::{BehaviorActivated, ResetReason};
use crate::id::{GenerationId, SessionId};
use crate::notice;
use crate::store::StoreError;
use crate::worker::hooks::HooksNotice;

/// The running hook generation, as status shows it.
pub(super) type Shown = Arc<Mutex<Option<GenerationId>>>;

/// Answers the hooks actor until it ends.
pub(super) async fn keep(
    mut notices: mpsc::Receiver<HooksNotice>,
    workshop: Arc<Workshop>,
    behavior: BehaviorActivated,
    shown: Shown,
) -> Result<(), StoreError> {
    let session = SessionId::root();
    let show = |generation| *shown.lock().unwrap_or_else(PoisonError::into_inner) = generation;
    let mut reason = ResetReason::First;
    let mut open = None;
    while let Some(notice) = notices.recv().await {
        match notice {
            HooksNotice::NeedSpec(reply) => {
                let spec = workshop.next(&session, Role::Hooks, Some(&behavior.release)).await?;
                // An actor that was told to stop needs no spec.
                let _ = reply.send(spec);
            }
            HooksNotice::Started { spec, hello } => {
                let event = workshop.reset_event(&spec, &hello, reason, false);
                workshop.store.append(event).await?;
                open = Some(spec.generation.clone());
                show(Some(spec.generation));
            }
            HooksNotice::Ended { generation, ended } => {
                show(None);
                reason = ResetReason::Died;
                // A generation that never said hello was never logged as running.
                if open.take().is_some_and(|running| running == generation) {
                    workshop.store.append(ended_event(&session, Role::Hooks, &generation, &ended)).await?;
                } else {
                    tracing::error!(
                        message_id = notice::WORKER_FAILED,
                        klbr_generation = %generation,
                        "the hook worker did not start: {}",
                        ended.detail
                    );
                }
            }
        }
    }
    Ok(())
}

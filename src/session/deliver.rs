//! The text that ends a turn, delivered like a `local.send` of its own.

use super::SessionError;
use crate::id::{EventId, ExecutionId, GenerationId, RequestId, SessionId};
use crate::limits::SEND_BYTES_MAX;
use crate::requests::{Caller, Refusal, Services, local};
use crate::store::StoreError;

/// Delivers the text of `response` in as many parts as it needs. Its identity is made of the
/// response: done again after a crash, it sends only what was not sent.
pub(super) async fn final_text(
    services: &Services,
    session: &SessionId,
    response: EventId,
    text: &str,
) -> Result<(), SessionError> {
    let caller = caller(session, response)?;
    for (index, part) in parts(text).into_iter().enumerate() {
        match local::send(services, &caller, part_id(index)?, part.to_owned()).await {
            Ok(_) => {}
            // Its words may be the policy's: they are not for the journal.
            Err(Refusal { code, .. }) => {
                tracing::error!(
                    klbr_session = %session,
                    klbr_event = %response,
                    ?code,
                    "a turn's last text was not delivered"
                );
            }
        }
    }
    Ok(())
}

/// Whether some of it was delivered before the host was restarted.
pub(super) async fn already(
    services: &Services,
    session: &SessionId,
    response: EventId,
) -> Result<bool, StoreError> {
    let Ok(caller) = caller(session, response) else { return Ok(false) };
    let effects = services.store.read(move |snapshot| snapshot.effects_of(&caller.execution)).await?;
    Ok(!effects.is_empty())
}

fn caller(session: &SessionId, response: EventId) -> Result<Caller, SessionError> {
    let execution = ExecutionId::parse(format!("final-{response}")).map_err(|error| inconsistent(&error))?;
    Ok(Caller {
        session: session.clone(),
        execution,
        generation: GenerationId::numbered(0),
        unit: String::new(),
        step: None,
        behavior: None,
        header_digest: None,
        prompt_tokens: None,
    })
}

fn part_id(index: usize) -> Result<RequestId, SessionError> {
    RequestId::parse(format!("text-{}", index + 1)).map_err(|error| inconsistent(&error))
}

fn inconsistent(error: &crate::id::IdError) -> SessionError {
    SessionError::Inconsistent(error.to_string())
}

/// `text` in pieces of at most [`SEND_BYTES_MAX`] bytes, cut between characters.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > SEND_BYTES_MAX {
        let cut = (1..=SEND_BYTES_MAX).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(cut);
        parts.push(part);
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_nothing_is_lost() {
        let text = "é".repeat(SEND_BYTES_MAX);
        let parts = parts(&text);

        assert_eq!(parts.concat(), text);
        assert!(parts.iter().all(|part| part.len() <= SEND_BYTES_MAX));
        assert_eq!(parts.len(), 2);
    }

    #[test]
    fn a_text_at_the_limit_is_one_part() {
        let text = "a".repeat(SEND_BYTES_MAX);

        assert_eq!((parts(&text).len(), parts(&format!("{text}a")).len(), parts("").len()), (1, 2, 0));
    }
}

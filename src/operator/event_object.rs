//! An event as operators and scripts see it.

use serde::{Serialize, Serializer};

use crate::clock;
use crate::event::{Body, Event};

/// `{"event_id","session_id","kind","source","at","at_ms","payload"}`, and `execution_id` where the
/// event happened in a cell or delivers a turn's last text (klbr(1)).
#[derive(Debug, Serialize)]
pub struct EventObject<'a> {
    event_id: i64,
    session_id: &'a str,
    kind: &'static str,
    source: &'a str,
    at: Option<String>,
    at_ms: i64,
    payload: Payload<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<&'a str>,
}

impl<'a> From<&'a Event> for EventObject<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            event_id: event.id.0,
            session_id: event.session.as_str(),
            kind: event.body.kind(),
            source: &event.source.0,
            at: clock::rfc3339(event.at_ms),
            at_ms: event.at_ms,
            payload: Payload(&event.body),
            execution_id: event.execution.as_ref().map(crate::id::ExecutionId::as_str),
        }
    }
}

/// A body without its tag: the members keep the order of their declaration.
#[derive(Debug)]
struct Payload<'a>(&'a Body);

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Body::SessionOpened(payload) => payload.serialize(to),
            Body::OperatorInput(payload) => payload.serialize(to),
            Body::AttentionPlanned(payload) => payload.serialize(to),
            Body::TurnStarted(payload) => payload.serialize(to),
            Body::ModelRequested(payload) => payload.serialize(to),
            Body::ModelResponded(payload) => payload.serialize(to),
            Body::ModelFailed(payload) => payload.serialize(to),
            Body::CellStarted(payload) => payload.serialize(to),
            Body::CellCompleted(payload) => payload.serialize(to),
            Body::StepEnded(payload) => payload.serialize(to),
            Body::EffectIntended(payload) => payload.serialize(to),
            Body::EffectSettled(payload) => payload.serialize(to),
            Body::DeliverySent(payload) => payload.serialize(to),
            Body::DeliveryHeld(payload) => payload.serialize(to),
            Body::DeliveryDiscarded(payload) => payload.serialize(to),
            Body::WaitAccepted(payload) => payload.serialize(to),
            Body::Wake(payload) => payload.serialize(to),
            Body::TurnEnded(payload) => payload.serialize(to),
            Body::PromptHeader(payload) => payload.serialize(to),
            Body::KernelReset(payload) => payload.serialize(to),
            Body::GenerationEnded(payload) => payload.serialize(to),
            Body::BehaviorActivated(payload) => payload.serialize(to),
            Body::HostStarted(payload) => payload.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DeliverySent, Source};
    use crate::id::{EffectId, EventId, ExecutionId, SessionId};

    fn delivery(at_ms: i64, execution: Option<ExecutionId>) -> Event {
        let effect_id = EffectId::parse("e-1").unwrap();
        Event {
            id: EventId(42),
            session: SessionId::root(),
            source: Source::session(),
            execution,
            at_ms,
            body: Body::DeliverySent(DeliverySent { text: "45".to_owned(), effect_id, released: false }),
        }
    }

    #[test]
    fn an_event_has_the_members_of_the_script_contract_in_its_order() {
        let event = delivery(1_789_325_940_000, None);
        let text = serde_json::to_string(&EventObject::from(&event)).unwrap();

        assert_eq!(
            text,
            "{\"event_id\":42,\"session_id\":\"root\",\"kind\":\"delivery.sent\",\"source\":\"session\",\
             \"at\":\"2026-09-13T18:59:00Z\",\"at_ms\":1789325940000,\
             \"payload\":{\"text\":\"45\",\"effect_id\":\"e-1\"}}"
        );
    }

    #[test]
    fn a_time_that_cannot_be_used_is_null_and_a_cell_is_named() {
        let event = delivery(0, Some(ExecutionId::numbered(3)));
        let object = serde_json::to_value(EventObject::from(&event)).unwrap();

        assert_eq!(object["at"], serde_json::Value::Null);
        assert_eq!(object["execution_id"], "x-3");
    }
}

//! `local.send`: text to the operator, past review.

use serde::Deserialize;
use serde_json::{Value, json};

use super::effect::{Begun, Identity};
use super::{Caller, Refusal, Services};
use crate::cell::HookSlot;
use crate::event::{Body, DeliveryHeld, DeliverySent};
use crate::id::{EffectId, RequestId};
use crate::limits::SEND_BYTES_MAX;
use crate::wire::message::{ErrorCode, Request};

/// What `delivery.review` decides.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
enum Review {
    /// The text goes out.
    Allow {},
    /// The text is kept back.
    Hold { reason: String },
}

/// Puts `text` on the operator lane, or holds it; the receipt says which.
///
/// The same identity gets the same receipt and sends nothing again. Anything but a clear "allow"
/// from review holds the text: a review that cannot be asked is not an approval.
pub async fn send(
    services: &Services,
    caller: &Caller,
    id: RequestId,
    text: String,
) -> Result<Value, Refusal> {
    if text.len() > SEND_BYTES_MAX {
        let message =
            format!("the text has {} bytes, the limit is {SEND_BYTES_MAX}; send it in parts", text.len());
        return Err(Refusal::new(ErrorCode::TooLarge, message));
    }
    if text.is_empty() {
        return Err(Refusal::invalid("the text is empty"));
    }
    let request = Request::LocalSend { text: text.clone() };
    let identity = Identity::of(caller, id, "local.send", &request);
    let begin = identity.clone();
    // Nothing leaves before the outcome is committed: review need not wait until the intent is.
    let (begun, review) = tokio::join!(
        services.store.write(move |transaction| begin.begin(transaction)),
        review(services, &identity.effect, &text)
    );
    match begun?? {
        Begun::Settled(receipt) => return receipt,
        Begun::New => {}
    }
    services
        .store
        .write(move |transaction| settle(transaction, &identity, text, review))
        .await
        .map_err(Refusal::from)
}

async fn review(services: &Services, effect: &EffectId, text: &str) -> Review {
    let input = json!({"effect_id": effect, "destination": "operator", "text": text});
    match services.hooks.invoke(HookSlot::DeliveryReview, input).await {
        Ok(value) => serde_json::from_value(value).unwrap_or_else(|error| Review::Hold {
            reason: format!("review answered something that is not a decision: {error}"),
        }),
        Err(error) => Review::Hold { reason: format!("review is not available: {error}") },
    }
}

fn settle(
    transaction: &mut crate::store::Transaction<'_>,
    identity: &Identity,
    text: String,
    review: Review,
) -> Result<Value, crate::store::StoreError> {
    let effect_id = identity.effect.clone();
    let (status, reason, body) = match review {
        Review::Allow {} => {
            let sent = DeliverySent { text, effect_id: effect_id.clone(), released: false };
            ("confirmed", None, Body::DeliverySent(sent))
        }
        Review::Hold { reason } => {
            let held = DeliveryHeld { text, effect_id: effect_id.clone(), reason: reason.clone() };
            ("held", Some(reason), Body::DeliveryHeld(held))
        }
    };
    let event = transaction.append(identity.event(body))?;
    // A held text is not on the operator lane: its receipt names no event there.
    let lane = (status == "confirmed").then_some(event);
    let receipt = json!({"effect_id": effect_id, "status": status, "event_id": lane, "reason": reason});
    identity.commit(transaction, event, receipt.clone())?;
    Ok(receipt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_decision_is_a_decision() {
        let parse = |value: Value| serde_json::from_value::<Review>(value).ok();

        assert_eq!(parse(json!({"action": "allow"})), Some(Review::Allow {}));
        assert_eq!(
            parse(json!({"action": "hold", "reason": "r"})),
            Some(Review::Hold { reason: "r".into() })
        );
        let broken = [
            json!({"action": "allow", "also": 1}),
            json!({"action": "hold"}),
            json!({"action": "ALLOW"}),
            json!("allow"),
            json!(null),
        ];
        for value in broken {
            assert_eq!(parse(value.clone()), None, "{value}");
        }
    }
}

//! Payloads of effects and deliveries.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EffectState;
use crate::id::{Digest, EffectId, EventId, RequestId};

/// Payload of `effect.intended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectIntended {
    /// Its identity.
    pub effect_id: EffectId,
    /// The request.
    pub request: RequestId,
    /// Its method.
    pub method: String,
    /// Digest of the request's fields: the same identity with other fields is a conflict.
    pub digest: Digest,
}

/// Payload of `effect.settled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectSettled {
    /// Its identity.
    pub effect_id: EffectId,
    /// The request.
    pub request: RequestId,
    /// What became of it.
    pub state: EffectState,
    /// The event that proves it; null where there is none.
    pub event: Option<EventId>,
    /// The reply: a value, or `{"code","message"}` where it was refused.
    pub receipt: Value,
}

/// Payload of `delivery.sent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliverySent {
    /// The text.
    pub text: String,
    /// The effect whose receipt this is.
    pub effect_id: EffectId,
    /// True where the operator released a held text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

/// Payload of `delivery.held`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveryHeld {
    /// The text.
    pub text: String,
    /// The effect whose receipt this is.
    pub effect_id: EffectId,
    /// Why review kept it back.
    pub reason: String,
}

/// Payload of `delivery.discarded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveryDiscarded {
    /// The held effect.
    pub effect_id: EffectId,
}

//! `hooks.list` and `hooks.describe`: what the policy in force is, and how its slots are shaped.

use serde_json::{Value, json};

use super::{Caller, Refusal, Services, slot_named};
use crate::cell::HookSlot;
use crate::limits::HOOK_BUDGET_MS;
use crate::wire::message::ErrorCode;

/// One entry per slot.
pub(super) fn list(services: &Services, caller: &Caller) -> Result<Value, Refusal> {
    HookSlot::ALL
        .into_iter()
        .map(|slot| entry(services, caller, slot))
        .collect::<Result<Vec<_>, _>>()
        .map(Value::from)
}

/// One slot, with the shape of its input and result and its budget.
pub(super) fn describe(services: &Services, caller: &Caller, slot: &str) -> Result<Value, Refusal> {
    let slot = slot_named(slot)?;
    let mut value = entry(services, caller, slot)?;
    let (input, result) = match slot {
        HookSlot::AttentionPlan => (attention_input(), attention_result()),
        HookSlot::DeliveryReview => (delivery_input(), delivery_result()),
    };
    value["input_schema"] = input;
    value["result_schema"] = result;
    value["budget_ms"] = json!(HOOK_BUDGET_MS);
    Ok(value)
}

fn entry(services: &Services, caller: &Caller, slot: HookSlot) -> Result<Value, Refusal> {
    let Some(behavior) = &caller.behavior else {
        return Err(Refusal::new(ErrorCode::NotFound, "no release of hooks is active; run `klbr init`"));
    };
    let entrypoint = services.facts.entrypoints.get(&slot);
    Ok(json!({
        "slot": slot.as_str(),
        "entrypoint": entrypoint,
        "revision": behavior.release,
        "epoch": behavior.epoch,
    }))
}

fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|map| map.keys()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn attention_input() -> Value {
    object(&json!({
        "event_id": {"type": "integer", "minimum": 1},
        "source": {"enum": ["operator", "discord.dm", "discord.mention", "discord.ambient"]},
        "received_at_ms": {"type": "integer", "minimum": 0},
    }))
}

fn attention_result() -> Value {
    json!({"oneOf": [
        object(&json!({"action": {"const": "wake"}, "priority": {"type": "integer"}})),
        object(&json!({"action": {"const": "defer"}, "seconds": {"type": "number", "exclusiveMinimum": 0}})),
        object(&json!({"action": {"const": "ignore"}, "reason": {"type": "string"}})),
    ]})
}

fn delivery_input() -> Value {
    object(&json!({
        "effect_id": {"type": "string"},
        "destination": {"const": "operator"},
        "text": {"type": "string", "maxLength": crate::limits::SEND_BYTES_MAX},
    }))
}

fn delivery_result() -> Value {
    json!({"oneOf": [
        object(&json!({"action": {"const": "allow"}})),
        object(&json!({"action": {"const": "hold"}, "reason": {"type": "string"}})),
    ]})
}

//! `hooks.list` and `hooks.describe`: what the policy in force is, and how its slots are shaped.

use serde_json::{Value, json};

use super::{Caller, Refusal, Services, slot_named};
use crate::cell::HookSlot;
use crate::limits::{
    HOOK_BUDGET_MS, HOOK_DEFER_SECONDS_MAX, HOOK_PRIORITY_MAX, HOOK_REASON_BYTES_MAX, SEND_BYTES_MAX,
};
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
    let priority = json!({"type": "integer", "minimum": 0, "maximum": HOOK_PRIORITY_MAX});
    let seconds = json!({"type": "number", "exclusiveMinimum": 0, "maximum": HOOK_DEFER_SECONDS_MAX});
    json!({"oneOf": [
        object(&json!({"action": {"const": "wake"}, "priority": priority})),
        object(&json!({"action": {"const": "defer"}, "seconds": seconds})),
        object(&json!({"action": {"const": "ignore"}, "reason": reason()})),
    ]})
}

/// JSON Schema counts characters, of which there are no more than bytes.
fn reason() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": HOOK_REASON_BYTES_MAX})
}

fn delivery_input() -> Value {
    object(&json!({
        "effect_id": {"type": "string"},
        "destination": {"const": "operator"},
        "text": {"type": "string", "maxLength": SEND_BYTES_MAX},
    }))
}

fn delivery_result() -> Value {
    json!({"oneOf": [
        object(&json!({"action": {"const": "allow"}})),
        object(&json!({"action": {"const": "hold"}, "reason": reason()})),
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_decisions_are_those_of_the_python_side() {
        let python = include_str!("../../python/klbr/policy.py");
        let constant = |name: &str| -> f64 {
            let line = python.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            line.unwrap().replace('_', "").parse().unwrap()
        };
        let attention = attention_result();
        let reasons = [&attention["oneOf"][2], &delivery_result()["oneOf"][1]]
            .map(|decision| decision["properties"]["reason"]["maxLength"].as_f64());

        assert_eq!(
            attention["oneOf"][0]["properties"]["priority"]["maximum"].as_f64(),
            Some(constant("PRIORITY_MAX"))
        );
        assert_eq!(
            attention["oneOf"][1]["properties"]["seconds"]["maximum"].as_f64(),
            Some(constant("DEFER_SECONDS_MAX"))
        );
        assert_eq!(reasons, [Some(constant("REASON_BYTES_MAX")); 2]);
    }
}

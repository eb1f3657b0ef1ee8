//! Token counts, read from every shape that routes send, and never derived.

use serde_json::Value;

use crate::event::Usage;

/// The counts of a usage object. What is null, negative, not a whole number or not there is absent.
pub fn read(usage: &Value) -> Usage {
    let count = |value: &Value| value.as_u64();
    let first = |values: &[&Value]| values.iter().find_map(|value| count(value));
    let prompt_details = [&usage["prompt_tokens_details"], &usage["input_tokens_details"]];
    let completion_details = [&usage["completion_tokens_details"], &usage["output_tokens_details"]];
    let detail = |details: &[&Value; 2], name: &str| details.iter().find_map(|detail| count(&detail[name]));
    Usage {
        prompt_tokens: count(&usage["prompt_tokens"]),
        completion_tokens: count(&usage["completion_tokens"]),
        total_tokens: count(&usage["total_tokens"]),
        cached_prompt_tokens: detail(&prompt_details, "cached_tokens")
            .or_else(|| first(&[&usage["prompt_cache_hit_tokens"], &usage["cached_tokens"]])),
        cache_write_tokens: detail(&prompt_details, "cache_write_tokens")
            .or_else(|| first(&[&usage["cache_write_tokens"]])),
        uncached_prompt_tokens: first(&[&usage["prompt_cache_miss_tokens"]]),
        reasoning_tokens: detail(&completion_details, "reasoning_tokens"),
    }
}

/// The usage object of an answer or of a stream's piece, wherever the route puts it.
pub fn find(body: &Value) -> Option<&Value> {
    let places = [&body["usage"], &body["choices"][0]["usage"], &body["x_groq"]["usage"]];
    places.into_iter().find(|usage| usage.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_a_count_is_absent_and_zero_is_zero() {
        let usage = read(&json!({
            "prompt_tokens": "12",
            "completion_tokens": -3,
            "total_tokens": null,
            "prompt_tokens_details": {"cached_tokens": 0},
        }));

        assert_eq!(usage, Usage { cached_prompt_tokens: Some(0), ..Usage::default() });
    }
}

//! Points in time as our files spell them: ISO 8601, UTC, milliseconds.

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};

/// `2026-01-31T09:05:07.123Z`, now.
pub(crate) fn now() -> String {
    spell(Utc::now())
}

/// Milliseconds since 1970, now.
pub(crate) fn now_ms() -> i64 {
    Utc::now().timestamp_millis()
}

/// Milliseconds since 1970 of a time in our spelling; 0 of what is none.
pub(crate) fn ms_of(text: &str) -> i64 {
    DateTime::parse_from_rfc3339(text).map_or(0, |at| at.timestamp_millis())
}

/// A time that another program wrote, in our spelling: ISO 8601 with or without offset (none means
/// UTC), or seconds since 1970.
pub(crate) fn adopt(value: &serde_json::Value) -> Option<String> {
    let at = match value {
        serde_json::Value::Number(seconds) => {
            let ms = seconds.as_f64()? * 1000.0;
            DateTime::from_timestamp_millis(ms as i64)?
        }
        serde_json::Value::String(text) => DateTime::parse_from_rfc3339(text)
            .map(|at| at.with_timezone(&Utc))
            .or_else(|_| text.parse::<NaiveDateTime>().map(|at| at.and_utc()))
            .ok()?,
        _ => return None,
    };
    Some(spell(at))
}

fn spell(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_of_the_earlier_bridge_are_adopted_in_every_form_it_wrote() {
        for (written, adopted) in [
            (
                json!("2025-11-20T12:34:56.789012"),
                Some("2025-11-20T12:34:56.789Z"),
            ),
            (
                json!("2025-11-20T12:34:56+02:00"),
                Some("2025-11-20T10:34:56.000Z"),
            ),
            (json!(1_763_642_096.5), Some("2025-11-20T12:34:56.500Z")),
            (json!("yesterday"), None),
            (json!(1e300), None),
            (json!(null), None),
        ] {
            assert_eq!(adopt(&written).as_deref(), adopted, "{written}");
        }
    }
}

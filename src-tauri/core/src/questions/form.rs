//! A form as a window shows it, read from the JSON Schema of a question, and the answer to it.
//!
//! The protocol lets such a schema describe text, numbers, switches and choices, and nothing that is
//! nested. What cannot be shown is refused whole: half a form would give half an answer.

use chrono::{DateTime, NaiveDate};
use reqwest::Url;
use serde_json::{Map, Value};

use crate::api::{Choice, QuestionField, QuestionInput, TextFormat};

/// Of the name of a field, and of what is written beside it.
const LABEL_CHARS_MAX: usize = 200;
const ABOUT_CHARS_MAX: usize = 1_000;

/// Things to choose from in one field.
const CHOICES_MAX: usize = 500;

/// Text that one field takes.
const TEXT_CHARS_MAX: u32 = 100_000;

/// The fields that `schema` describes; the error names the one that cannot be shown.
pub(super) fn fields(schema: &Map<String, Value>) -> Result<Vec<QuestionField>, String> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut fields = Vec::new();
    for (name, property) in properties.into_iter().flatten() {
        let property = without_null(property);
        let input = input(property).ok_or_else(|| {
            let name: String = name.chars().take(LABEL_CHARS_MAX).collect();
            format!("its form has a field `{name}` of a kind that cannot be shown")
        })?;
        let text = |key: &str, chars: usize| {
            let text = property.get(key).and_then(Value::as_str)?.trim();
            let cut: String = text.chars().take(chars).collect();
            (!cut.is_empty()).then_some(cut)
        };
        fields.push(QuestionField {
            name: name.clone(),
            label: text("title", LABEL_CHARS_MAX)
                .unwrap_or_else(|| name.chars().take(LABEL_CHARS_MAX).collect()),
            about: text("description", ABOUT_CHARS_MAX),
            required: required.contains(&name.as_str()),
            input,
        });
    }
    Ok(fields)
}

/// Some libraries write what is optional as a choice between a type and nothing.
fn without_null(property: &Value) -> &Value {
    let is_null = |one: &&Value| one.get("type") == Some(&"null".into());
    let Some(of) = property.get("anyOf").and_then(Value::as_array) else {
        return property;
    };
    match of
        .iter()
        .filter(|one| !is_null(one))
        .collect::<Vec<_>>()
        .as_slice()
    {
        [one] if of.len() == 2 => one,
        _ => property,
    }
}

fn input(property: &Value) -> Option<QuestionInput> {
    let default = property.get("default");
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = |key: &str| {
        let count = property.get(key).and_then(Value::as_u64);
        count.map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    if let Some(choices) = choices(property) {
        let value = default.and_then(Value::as_str).map(str::to_owned);
        return Some(QuestionInput::Choice {
            value: value.filter(|value| choices.iter().any(|one| one.value == *value)),
            choices: bounded(choices)?,
        });
    }
    let input = match property.get("type").and_then(Value::as_str)? {
        "string" => QuestionInput::Text {
            format: match property.get("format").and_then(Value::as_str) {
                Some("email") => Some(TextFormat::Email),
                Some("uri") => Some(TextFormat::Uri),
                Some("date") => Some(TextFormat::Date),
                Some("date-time") => Some(TextFormat::DateTime),
                _ => None,
            },
            chars_min: count("minLength").unwrap_or(0),
            chars_max: count("maxLength").map_or(TEXT_CHARS_MAX, |max| max.min(TEXT_CHARS_MAX)),
            value: text(default),
        },
        kind @ ("number" | "integer") => {
            let number = |value: Option<&Value>| {
                value
                    .filter(|value| value.is_number())
                    .map(Value::to_string)
            };
            QuestionInput::Number {
                whole: kind == "integer",
                min: number(property.get("minimum")),
                max: number(property.get("maximum")),
                value: number(default).unwrap_or_default(),
            }
        }
        "boolean" => QuestionInput::Flag {
            value: default.and_then(Value::as_bool).unwrap_or_default(),
        },
        "array" => {
            let choices = choices(property.get("items")?)?;
            let known = |value: &&Value| {
                choices
                    .iter()
                    .any(|one| Some(one.value.as_str()) == value.as_str())
            };
            let value = default.and_then(Value::as_array).map(|values| {
                let chosen = values.iter().filter(known).filter_map(Value::as_str);
                chosen.map(str::to_owned).collect()
            });
            let all = u32::try_from(choices.len()).unwrap_or(u32::MAX);
            QuestionInput::Choices {
                count_min: count("minItems").unwrap_or(0),
                count_max: count("maxItems").map_or(all, |max| max.min(all)),
                value: value.unwrap_or_default(),
                choices: bounded(choices)?,
            }
        }
        _ => return None,
    };
    Some(input)
}

/// The three ways in which revisions of the protocol spell choices. `None`: there are none.
fn choices(property: &Value) -> Option<Vec<Choice>> {
    let list = |key: &str| property.get(key).and_then(Value::as_array);
    if let Some(values) = list("enum") {
        let names = list("enumNames");
        return values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let value = value.as_str()?;
                let name = names.and_then(|names| names.get(at)?.as_str());
                Some(choice(value, name))
            })
            .collect();
    }
    let titled = list("oneOf").or_else(|| list("anyOf"))?;
    titled
        .iter()
        .map(|one| {
            let value = one.get("const")?.as_str()?;
            Some(choice(value, one.get("title").and_then(Value::as_str)))
        })
        .collect()
}

fn choice(value: &str, label: Option<&str>) -> Choice {
    let label = label.filter(|label| !label.trim().is_empty());
    Choice {
        value: value.to_owned(),
        label: label
            .unwrap_or(value)
            .chars()
            .take(LABEL_CHARS_MAX)
            .collect(),
    }
}

fn bounded(choices: Vec<Choice>) -> Option<Vec<Choice>> {
    (!choices.is_empty() && choices.len() <= CHOICES_MAX).then_some(choices)
}

/// What of `values` answers `fields`; the error says in words which value does not.
pub(super) fn check(
    fields: &[QuestionField],
    mut values: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let mut answer = Map::new();
    for field in fields {
        match values.remove(&field.name) {
            None | Some(Value::Null) if field.required => {
                return Err(format!("“{}” needs a value", field.label));
            }
            None | Some(Value::Null) => {}
            Some(value) => {
                fits(&field.input, &value)
                    .map_err(|problem| format!("“{}” {problem}", field.label))?;
                answer.insert(field.name.clone(), value);
            }
        }
    }
    match values.keys().next() {
        Some(name) => Err(format!("the form has no field `{name}`")),
        None => Ok(answer),
    }
}

fn fits(input: &QuestionInput, value: &Value) -> Result<(), String> {
    match input {
        QuestionInput::Text {
            format,
            chars_min,
            chars_max,
            ..
        } => {
            let text = value.as_str().ok_or("must be text")?;
            let chars = text.chars().count();
            if chars < *chars_min as usize {
                return Err(format!("must have at least {chars_min} characters"));
            }
            if chars > *chars_max as usize {
                return Err(format!("must have at most {chars_max} characters"));
            }
            match format {
                Some(format) if !is_of(*format, text) => Err(format!(
                    "must be {}",
                    match format {
                        TextFormat::Email => "an e-mail address",
                        TextFormat::Uri => "a web address",
                        TextFormat::Date => "a date such as 2026-11-30",
                        TextFormat::DateTime => "a moment such as 2026-11-30T09:30:00Z",
                    }
                )),
                _ => Ok(()),
            }
        }
        QuestionInput::Number {
            whole, min, max, ..
        } => {
            let number = value.as_f64().ok_or("must be a number")?;
            if *whole && number.fract() != 0.0 {
                return Err("must be a whole number".to_owned());
            }
            let bound = |bound: &Option<String>| bound.as_ref()?.parse::<f64>().ok();
            if let (Some(text), Some(_)) = (min, bound(min).filter(|min| number < *min)) {
                return Err(format!("must be at least {text}"));
            }
            if let (Some(text), Some(_)) = (max, bound(max).filter(|max| number > *max)) {
                return Err(format!("must be at most {text}"));
            }
            Ok(())
        }
        QuestionInput::Flag { .. } => value
            .as_bool()
            .map(|_| ())
            .ok_or_else(|| "must be yes or no".to_owned()),
        QuestionInput::Choice { choices, .. } => one_of(choices, value),
        QuestionInput::Choices {
            choices,
            count_min,
            count_max,
            ..
        } => {
            let chosen = value.as_array().ok_or("must be a list")?;
            if chosen.len() < *count_min as usize || chosen.len() > *count_max as usize {
                return Err(format!("needs {count_min} to {count_max} of its choices"));
            }
            chosen.iter().try_for_each(|one| one_of(choices, one))
        }
    }
}

fn one_of(choices: &[Choice], value: &Value) -> Result<(), String> {
    let is_one = |choice: &Choice| value.as_str() == Some(&choice.value);
    choices
        .iter()
        .any(is_one)
        .then_some(())
        .ok_or_else(|| "must be one of its choices".to_owned())
}

fn is_of(format: TextFormat, text: &str) -> bool {
    match format {
        TextFormat::Email => text.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace)
        }),
        TextFormat::Uri => Url::parse(text).is_ok(),
        TextFormat::Date => NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok(),
        TextFormat::DateTime => DateTime::parse_from_rfc3339(text).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use serde_json::json;

    use super::*;

    #[allow(
        clippy::needless_pass_by_value,
        reason = "tests write their values in place"
    )]
    fn of(properties: Value, required: &[&str]) -> Result<Vec<QuestionField>, String> {
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        fields(schema.as_object().unwrap())
    }

    /// Every kind that the protocol has, in each of its spellings.
    fn everything() -> Vec<QuestionField> {
        let properties = json!({
            "name": { "type": "string", "title": "Your name", "description": "As on the ticket", "minLength": 2, "maxLength": 10, "default": "Ada" },
            "mail": { "type": "string", "format": "email" },
            "day": { "type": "string", "format": "date" },
            "at": { "type": "string", "format": "date-time" },
            "site": { "type": "string", "format": "uri" },
            "age": { "anyOf": [{ "type": "integer", "minimum": 0, "maximum": 150 }, { "type": "null" }] },
            "price": { "type": "number", "default": 0.10 },
            "sure": { "type": "boolean", "default": true },
            "size": { "type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"], "default": "m" },
            "colour": { "type": "string", "oneOf": [{ "const": "#f00", "title": "Red" }, { "const": "#00f" }] },
            "days": { "type": "array", "minItems": 1, "maxItems": 2, "items": { "type": "string", "enum": ["mo", "tu", "we"] }, "default": ["tu", "su"] },
            "ways": { "type": "array", "items": { "anyOf": [{ "const": "a", "title": "By air" }] } },
        });
        of(properties, &["name", "size"]).unwrap()
    }

    #[test]
    fn each_kind_of_field_is_read_with_its_bounds_and_what_it_begins_with() {
        let fields = everything();
        let input = |name: &str| {
            let field = fields.iter().find(|field| field.name == name);
            field.unwrap().input.clone()
        };
        assert_eq!(fields[0].label, "Your name");
        assert_eq!(fields[0].about.as_deref(), Some("As on the ticket"));
        let required: Vec<_> = fields.iter().filter(|field| field.required).collect();
        assert_eq!(required.len(), 2);
        assert_eq!(
            input("name"),
            QuestionInput::Text {
                format: None,
                chars_min: 2,
                chars_max: 10,
                value: "Ada".to_owned()
            }
        );
        assert_eq!(
            input("age"),
            QuestionInput::Number {
                whole: true,
                min: Some("0".to_owned()),
                max: Some("150".to_owned()),
                value: String::new()
            }
        );
        let QuestionInput::Choice { choices, value } = input("size") else {
            panic!()
        };
        assert_eq!(value.as_deref(), Some("m"));
        assert_eq!(choices[0].label, "Small");
        let QuestionInput::Choice { choices, value } = input("colour") else {
            panic!()
        };
        assert_eq!((choices[0].label.as_str(), value), ("Red", None));
        assert_eq!(choices[1].label, "#00f");
        let QuestionInput::Choices {
            value, count_max, ..
        } = input("days")
        else {
            panic!()
        };
        assert_eq!((value, count_max), (vec!["tu".to_owned()], 2));
        let QuestionInput::Choices { choices, .. } = input("ways") else {
            panic!()
        };
        assert_eq!(choices[0].label, "By air");
    }

    #[test]
    fn a_form_that_cannot_be_shown_whole_is_refused_by_the_name_of_its_field() {
        let many: Vec<_> = (0..=CHOICES_MAX).map(|it| it.to_string()).collect();
        for property in [
            json!({ "type": "object", "properties": {} }),
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({ "type": "string", "enum": [] }),
            json!({ "type": "string", "enum": many }),
            json!({ "enum": [1, 2] }),
            json!({}),
            json!(true),
        ] {
            let error = of(json!({ "odd": property }), &[]).unwrap_err();
            assert!(error.contains("`odd`"), "{error}");
        }
        assert_eq!(of(json!({}), &[]), Ok(Vec::new()));
    }

    #[test]
    fn an_answer_is_held_to_what_the_form_says() {
        let fields = everything();
        let good = json!({
            "name": "Ada", "mail": "ada@example.com", "day": "2026-11-30", "at": "2026-11-30T09:30:00Z",
            "site": "https://example.com", "age": 36, "price": 0.10, "sure": false, "size": "s",
            "colour": "#00f", "days": ["mo"], "ways": [],
        });
        let good = good.as_object().unwrap().clone();
        assert_eq!(check(&fields, good.clone()), Ok(good.clone()));
        for (name, value, why) in [
            ("name", Value::Null, "“Your name” needs a value"),
            ("name", json!("A"), "at least 2 characters"),
            ("name", json!("Augusta Ada King"), "at most 10 characters"),
            ("name", json!(7), "must be text"),
            ("mail", json!("ada"), "an e-mail address"),
            ("day", json!("30.11."), "a date"),
            ("at", json!("noon"), "a moment"),
            ("site", json!("nowhere"), "a web address"),
            ("age", json!(1.5), "a whole number"),
            ("age", json!(-1), "at least 0"),
            ("age", json!(151), "at most 150"),
            ("age", json!("36"), "must be a number"),
            ("sure", json!("yes"), "yes or no"),
            ("size", json!("xl"), "one of its choices"),
            ("days", json!([]), "needs 1 to 2"),
            ("days", json!(["su"]), "one of its choices"),
            ("other", json!(1), "no field `other`"),
        ] {
            let mut values = good.clone();
            values.insert(name.to_owned(), value);
            let error = check(&fields, values).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let least = json!({ "name": "Ada", "size": "m", "age": null });
        let least = check(&fields, least.as_object().unwrap().clone()).unwrap();
        assert_eq!(Value::Object(least), json!({ "name": "Ada", "size": "m" }));
    }
}

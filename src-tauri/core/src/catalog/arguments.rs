//! Arguments checked against a tool's schema before anything is sent.
//!
//! The rule is the contract's: a call that the server would accept is never refused. So only what
//! JSON Schema itself calls invalid is refused, and one thing more: a name that the schema does not
//! list and that is a near miss of a listed one that is absent. A schema that cannot be understood
//! checks nothing. Nothing is ever fetched.

use std::fmt::Write as _;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value};

use super::alias::{identifier, nearest};
use super::signature::{parameter_list, parameters, python};

/// Mistakes named in one message; more would hide the first.
const MISTAKES_MAX: usize = 3;

/// The check of one tool, compiled.
pub(crate) struct ArgumentCheck {
    /// Listed names, each with its identifier.
    listed: Vec<(String, String)>,
    /// Whether a near miss of a listed name can be taken for one.
    names_are_known: bool,
    validator: Option<Validator>,
    /// The parameters as the signature shows them.
    expected: String,
}

impl ArgumentCheck {
    pub(crate) fn new(schema: &Value) -> Self {
        let listed = parameters(schema)
            .into_iter()
            .map(|parameter| (parameter.name.clone(), identifier(&parameter.name)))
            .collect();
        let validator = if refers_only_to_itself(schema, 0) && !loops(schema) {
            // Formats are hints: servers differ in what they take for a date or an address.
            jsonschema::options()
                .should_validate_formats(false)
                .build(schema)
                .ok()
        } else {
            None
        };
        Self {
            listed,
            names_are_known: validator.is_some() && !names_are_open(schema),
            validator,
            expected: parameter_list(schema),
        }
    }

    /// The arguments as they are to be sent: names that are only a parameter's Python form are
    /// replaced by its real name. An error says what does not fit and what is expected.
    pub(crate) fn check(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, String> {
        let arguments = self.with_real_names(arguments);
        let mut mistakes = self.near_misses(&arguments);
        let arguments = Value::Object(arguments);
        if let Some(validator) = &self.validator
            && !validator.is_valid(&arguments)
        {
            for error in validator.iter_errors(&arguments) {
                self.describe(&error, &arguments, &mut mistakes);
            }
        }
        let Value::Object(arguments) = arguments else {
            return Err(format!(
                "{tool}: arguments are a mapping of names to values"
            ));
        };
        if mistakes.is_empty() {
            return Ok(arguments);
        }
        // A misspelt name makes the right one missing; one message for both is enough.
        mistakes.dedup();
        let more = mistakes.len().saturating_sub(MISTAKES_MAX);
        mistakes.truncate(MISTAKES_MAX);
        if more > 0 {
            mistakes.push(format!("{more} more"));
        }
        let expected = if self.expected.is_empty() {
            "no arguments"
        } else {
            &self.expected
        };
        Err(format!(
            "{tool}: {} (expected: {expected})",
            mistakes.join("; ")
        ))
    }

    /// `from_` is how Python writes the parameter `from`, and `cik_A` how it writes `cik-A`.
    fn with_real_names(&self, arguments: Map<String, Value>) -> Map<String, Value> {
        let lists = |name: &str| self.listed.iter().any(|(real, _)| real == name);
        let renamed = |name: &str, given: &Map<String, Value>| {
            if lists(name) {
                return None;
            }
            let mut meant = self.listed.iter().filter(|(_, alias)| alias == name);
            let (real, _) = meant.next()?;
            (meant.next().is_none() && !given.contains_key(real)).then(|| real.clone())
        };
        if arguments.keys().all(|name| lists(name)) {
            return arguments;
        }
        let renames: Vec<Option<String>> = arguments
            .keys()
            .map(|name| renamed(name, &arguments))
            .collect();
        arguments
            .into_iter()
            .zip(renames)
            .map(|((name, value), real)| (real.unwrap_or(name), value))
            .collect()
    }

    fn near_misses(&self, arguments: &Map<String, Value>) -> Vec<String> {
        if !self.names_are_known {
            return Vec::new();
        }
        let unlisted = arguments
            .keys()
            .filter(|name| !self.listed.iter().any(|(real, _)| real == *name));
        unlisted
            .filter_map(|name| {
                let (meant, _) = self
                    .listed
                    .iter()
                    .find(|(real, _)| !arguments.contains_key(real) && is_near_miss(name, real))?;
                Some(format!("unexpected `{name}`, did you mean `{meant}`?"))
            })
            .collect()
    }

    fn describe(&self, error: &ValidationError<'_>, arguments: &Value, mistakes: &mut Vec<String>) {
        let place = place(error.instance_path().as_str());
        let text = match error.kind() {
            // The engine gave up; that says nothing of the arguments.
            ValidationErrorKind::BacktrackLimitExceeded { .. }
            | ValidationErrorKind::RegexEngineFailure { .. }
            | ValidationErrorKind::Referencing(_)
            | ValidationErrorKind::Format { .. }
            | ValidationErrorKind::ContentEncoding { .. }
            | ValidationErrorKind::ContentMediaType { .. } => return,
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                if place.is_empty() && already_named(name, mistakes) {
                    return;
                }
                let within = if place.is_empty() {
                    String::new()
                } else {
                    format!(" in `{place}`")
                };
                format!("missing required `{name}`{within}")
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                for name in unexpected {
                    if place.is_empty() && already_named(name, mistakes) {
                        continue;
                    }
                    let within = if place.is_empty() {
                        String::new()
                    } else {
                        format!(" in `{place}`")
                    };
                    let near = if place.is_empty() {
                        let absent = self.listed.iter().map(|(real, _)| real.as_str());
                        let absent = absent.filter(|real| arguments.get(real).is_none());
                        nearest(name, absent)
                            .first()
                            .map(|near| format!(", did you mean `{near}`?"))
                    } else {
                        None
                    };
                    mistakes.push(format!(
                        "unexpected `{name}`{within}{}",
                        near.unwrap_or_default()
                    ));
                }
                return;
            }
            ValidationErrorKind::Type { kind } => {
                format!(
                    "{} is {}, expected {}",
                    subject(&place),
                    python_type(error.instance()),
                    expected_type(kind)
                )
            }
            ValidationErrorKind::Enum { options } => {
                let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
                let shown: Vec<String> = options.iter().take(20).map(python).collect();
                format!(
                    "{} is {}, expected one of {}",
                    subject(&place),
                    shortly(error.instance()),
                    shown.join(", ")
                )
            }
            ValidationErrorKind::Constant { expected_value } => {
                format!(
                    "{} is {}, expected {}",
                    subject(&place),
                    shortly(error.instance()),
                    python(expected_value)
                )
            }
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context } => {
                if let Some(types) = only_types(context, error) {
                    mistakes.push(format!(
                        "{} is {}, expected {types}",
                        subject(&place),
                        python_type(error.instance())
                    ));
                    return;
                }
                let mut options: Vec<String> = Vec::new();
                for first in context.iter().filter_map(|errors| errors.first()).take(5) {
                    let mut described = Vec::new();
                    self.describe(first, arguments, &mut described);
                    options.extend(described);
                }
                options.dedup();
                if options.is_empty() {
                    format!("{} fits none of the accepted forms", subject(&place))
                } else {
                    options.join(", or ")
                }
            }
            // A schema that lists nothing and forbids the rest is told of so.
            ValidationErrorKind::FalseSchema if place.is_empty() => {
                let given = arguments.as_object().into_iter().flat_map(Map::keys);
                for name in given.filter(|name| !self.listed.iter().any(|(real, _)| real == *name))
                {
                    mistakes.push(format!("unexpected `{name}`"));
                }
                if mistakes.is_empty() {
                    mistakes.push("no arguments are accepted".to_owned());
                }
                return;
            }
            ValidationErrorKind::FalseSchema => format!("{} is not accepted", subject(&place)),
            _ => {
                let reason: String = error.to_string().chars().take(300).collect();
                format!("{}: {reason}", subject(&place))
            }
        };
        mistakes.push(text);
    }
}

/// The types of a union that failed for its types alone: `str or None`.
fn only_types(
    options: &[Vec<ValidationError<'static>>],
    whole: &ValidationError<'_>,
) -> Option<String> {
    let types: Option<Vec<String>> = options
        .iter()
        .map(|errors| match errors.as_slice() {
            [only] if only.instance_path() == whole.instance_path() => match only.kind() {
                ValidationErrorKind::Type { kind } => Some(expected_type(kind)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    types
        .filter(|types| !types.is_empty())
        .map(|types| types.join(" or "))
}

fn already_named(name: &str, mistakes: &[String]) -> bool {
    let quoted = format!("`{name}`");
    mistakes.iter().any(|mistake| mistake.contains(&quoted))
}

/// Alike but for case, underscores and dashes, or a typing mistake in a name long enough for one.
pub(crate) fn is_near_miss(given: &str, listed: &str) -> bool {
    let plain = |name: &str| {
        name.chars()
            .filter(|c| !matches!(c, '_' | '-' | ' '))
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    let (given, listed) = (plain(given), plain(listed));
    if given == listed {
        return !given.is_empty();
    }
    let length = given.chars().count().min(listed.chars().count());
    let allowed = match length {
        5..=8 => 1,
        9..=64 => 2,
        // Too short to tell a mistake from another name, or too long to be one.
        _ => return false,
    };
    strsim::osa_distance(&given, &listed) <= allowed
}

/// References to other documents cannot be followed, so such a schema checks nothing.
fn refers_only_to_itself(schema: &Value, depth: usize) -> bool {
    if depth > 100 {
        return false;
    }
    match schema {
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| match (name.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    target.starts_with('#')
                }
                _ => refers_only_to_itself(value, depth + 1),
            }),
        Value::Array(items) => items
            .iter()
            .all(|item| refers_only_to_itself(item, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether a schema refers to itself without going into the instance, which no validator ends.
fn loops(schema: &Value) -> bool {
    fn visit<'a>(
        part: &'a Value,
        root: &'a Value,
        path: &mut Vec<*const Value>,
        left: &mut u32,
    ) -> bool {
        let Value::Object(fields) = part else {
            return false;
        };
        let here = std::ptr::from_ref(part);
        if path.contains(&here) || *left == 0 || path.len() > 200 {
            return true;
        }
        *left -= 1;
        path.push(here);
        let mut found = false;
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(pointer) = fields
                .get(keyword)
                .and_then(Value::as_str)
                .and_then(|target| target.strip_prefix('#'))
                && let Some(target) = root.pointer(pointer)
            {
                found = found || visit(target, root, path, left);
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for option in fields
                .get(keyword)
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default()
            {
                found = found || visit(option, root, path, left);
            }
        }
        for keyword in ["not", "if", "then", "else"] {
            if let Some(option) = fields.get(keyword) {
                found = found || visit(option, root, path, left);
            }
        }
        for (_, option) in fields
            .get("dependentSchemas")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            found = found || visit(option, root, path, left);
        }
        path.pop();
        found
    }
    fn anywhere(part: &Value, root: &Value, left: &mut u32) -> bool {
        match part {
            Value::Object(fields) => {
                visit(part, root, &mut Vec::new(), left)
                    || fields.values().any(|value| anywhere(value, root, left))
            }
            Value::Array(items) => items.iter().any(|item| anywhere(item, root, left)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    anywhere(schema, schema, &mut 50_000)
}

/// Whether names that are not listed have a meaning of their own at the top level.
fn names_are_open(schema: &Value) -> bool {
    fn open(schema: &Value, depth: usize) -> bool {
        let Value::Object(fields) = schema else {
            return false;
        };
        depth > 6
            || fields.contains_key("patternProperties")
            || fields.contains_key("$dynamicRef")
            || matches!(fields.get("additionalProperties"), Some(Value::Object(map)) if !map.is_empty())
            || ["allOf", "anyOf", "oneOf"].iter().any(|keyword| {
                fields
                    .get(*keyword)
                    .and_then(Value::as_array)
                    .is_some_and(|parts| parts.iter().any(|part| open(part, depth + 1)))
            })
    }
    // Behind a reference at the top there may be anything; it is seldom there at all.
    open(schema, 0)
}

/// `/labels/0/name` as Python would write it: `labels[0].name`.
fn place(pointer: &str) -> String {
    let mut place = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.chars().all(|c| c.is_ascii_digit()) && !place.is_empty() {
            let _ = write!(place, "[{part}]");
        } else {
            if !place.is_empty() {
                place.push('.');
            }
            place.push_str(&part);
        }
    }
    place
}

fn subject(place: &str) -> String {
    if place.is_empty() {
        "the arguments".to_owned()
    } else {
        format!("`{place}`")
    }
}

fn shortly(value: &Value) -> String {
    let text = python(value);
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn python_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

fn expected_type(kind: &TypeKind) -> String {
    let python = |name: &str| match name {
        "string" => "str",
        "integer" => "int",
        "number" => "float",
        "boolean" => "bool",
        "null" => "None",
        "array" => "list",
        "object" => "dict",
        _ => "another type",
    };
    match kind {
        TypeKind::Single(one) => python(&one.to_string()).to_owned(),
        TypeKind::Multiple(several) => several
            .iter()
            .map(|one| python(&one.to_string()))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, arguments: Value) -> Result<Value, String> {
        let Value::Object(arguments) = arguments else {
            panic!()
        };
        ArgumentCheck::new(schema)
            .check("create_issue", arguments)
            .map(Value::Object)
    }

    fn issue() -> Value {
        json!({
            "type": "object",
            "properties": {
                "repo_name": {"type": "string"},
                "title": {"type": "string"},
                "limit": {"type": "integer"},
                "state": {"enum": ["open", "closed"]},
                "labels": {"type": "array", "items": {"type": "string"}},
                "who": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["repo_name", "title"],
        })
    }

    #[test]
    fn mistakes_are_named_with_what_is_expected() {
        let mut closed = issue();
        closed["additionalProperties"] = false.into();
        let said = |schema: &Value, arguments: Value| check(schema, arguments).unwrap_err();
        let all = [
            said(&issue(), json!({"title": "x"})),
            said(
                &issue(),
                json!({"repo_name": "a/b", "title": "x", "limit": "5"}),
            ),
            said(
                &issue(),
                json!({"repo_name": "a/b", "title": "x", "labels": ["a", 1]}),
            ),
            said(
                &issue(),
                json!({"repo_name": "a/b", "title": "x", "state": "opened"}),
            ),
            said(
                &issue(),
                json!({"repo_name": "a/b", "title": "x", "who": 1}),
            ),
            said(&issue(), json!({"repoName": "a/b", "title": "x"})),
            said(&issue(), json!({"repo_nmae": "a/b", "titel": "x"})),
            said(
                &closed,
                json!({"repo_name": "a/b", "title": "x", "colour": 1}),
            ),
            said(
                &closed,
                json!({"repo_name": "a/b", "title": "x", "label": 1}),
            ),
            said(
                &json!({"type": "object", "additionalProperties": false}),
                json!({"x": 1}),
            ),
        ];
        insta::with_settings!({ snapshot_path => "../../../../tests/snapshots" }, {
            insta::assert_snapshot!(all.join("\n"));
        });
    }

    #[test]
    fn what_the_schema_does_not_forbid_is_sent() {
        for arguments in [
            json!({"repo_name": "a", "title": "b"}),
            json!({"repo_name": "a", "title": "b", "colour": {"any": "thing"}}),
            // Near a listed name that is there as well.
            json!({"repo_name": "a", "title": "b", "repoName": "c"}),
            json!({"repo_name": "a", "title": "b", "limit": 5.0, "who": null}),
        ] {
            assert_eq!(check(&issue(), arguments.clone()), Ok(arguments));
        }
    }

    #[test]
    fn schemas_that_cannot_be_understood_check_nothing() {
        for schema in [
            json!({"type": "banana"}),
            json!({"$ref": "https://example.com/schema.json"}),
            json!({"$ref": "#/nowhere"}),
            json!({"$ref": "#"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
            json!({"properties": {"x": {"pattern": "("}}}),
            json!({"properties": {"x": {"items": [{"type": "string"}]}}}),
            json!({}),
            json!(true),
        ] {
            let arguments = json!({"x": [1]});
            assert_eq!(check(&schema, arguments.clone()), Ok(arguments), "{schema}");
        }
    }

    #[test]
    fn recursion_through_the_instance_is_checked() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}});
        assert!(check(&schema, json!({"next": {"next": {"n": 1}}})).is_ok());
        insta::assert_snapshot!(check(&schema, json!({"next": {"next": {"n": "1"}}})).unwrap_err(),
            @"create_issue: `next.next.n` is str, expected int (expected: *, next: {next?: dict, n?: int} = None, n: int = None)");
    }

    #[test]
    fn python_forms_of_names_become_the_real_names() {
        let schema = json!({"properties": {"from": {}, "cik-A": {}, "a-b": {}, "a.b": {}, "x_": {}, "x": {}}});
        assert_eq!(
            check(&schema, json!({"from_": 1, "cik_A": 2, "a_b": 3, "x_": 4})),
            Err("create_issue: unexpected `a_b`, did you mean `a-b`? (expected: *, from_: Any = None, cik_A: Any = None, a_b: Any = None, a_b: Any = None, x_: Any = None, x: Any = None)".to_owned()),
        );
        assert_eq!(
            check(&schema, json!({"from_": 1, "cik_A": 2, "x_": 4})),
            Ok(json!({"from": 1, "cik-A": 2, "x_": 4}))
        );
        assert_eq!(
            check(&schema, json!({"from": 1, "from_": 2})),
            Ok(json!({"from": 1, "from_": 2}))
        );
    }

    #[test]
    fn a_pattern_that_never_ends_refuses_nothing() {
        let schema = json!({"properties": {"s": {"pattern": "^(?=(a+)+$)(a|aa)+\\1b$"}}});
        let arguments = json!({"s": "a".repeat(5000)});
        let begun = std::time::Instant::now();
        let _ = check(&schema, arguments);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    }

    fn any_type() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!({})),
            Just(json!({"type": "string"})),
            Just(json!({"type": "integer"})),
            Just(json!({"type": ["number", "null"]})),
            Just(json!({"enum": [1, "a", null]})),
            Just(json!({"const": true})),
            Just(json!({"type": "array", "items": {"type": "integer"}})),
            Just(json!(true)),
            Just(json!(false)),
            Just(json!({"type": "string", "format": "date"})),
        ]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            Just(json!(1.0)),
            Just(json!(1.5)),
            "[a-c]{0,2}".prop_map(Value::from),
            Just(json!([1, 2])),
            Just(json!(["x"])),
            Just(json!({"k": 1})),
        ]
    }

    const NAMES: [&str; 7] = [
        "repo",
        "repo_name",
        "repoName",
        "from",
        "from_",
        "titel",
        "x",
    ];

    fn any_schema() -> impl Strategy<Value = Value> {
        let name = proptest::sample::select(&NAMES[..]);
        let properties = proptest::collection::vec((name.clone(), any_type()), 0..5);
        let required = proptest::collection::vec(name, 0..2);
        let rest = proptest::option::of(prop_oneof![
            Just(json!(false)),
            Just(json!({"type": "integer"}))
        ]);
        (properties, required, rest, any::<bool>()).prop_map(|(properties, required, rest, any_of)| {
            let properties: Map<String, Value> =
                properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
            let mut schema = json!({"type": "object", "properties": properties, "required": required});
            schema["required"].as_array_mut().unwrap().dedup();
            if let Some(rest) = rest {
                schema["additionalProperties"] = rest;
            }
            if any_of { json!({"anyOf": [schema, {"properties": {"x": {"type": "string"}}, "required": ["x"]}]}) } else { schema }
        })
    }

    fn any_arguments() -> impl Strategy<Value = Map<String, Value>> {
        let name = proptest::sample::select(&NAMES[..]);
        proptest::collection::vec((name, any_value()), 0..4).prop_map(|pairs| {
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn only_invalid_calls_and_near_misses_are_refused(schema in any_schema(), arguments in any_arguments()) {
            let check = ArgumentCheck::new(&schema);
            if let Err(message) = check.check("t", arguments.clone()) {
                let valid = jsonschema::options().should_validate_formats(false).build(&schema)
                    .map_or(true, |validator| validator.is_valid(&Value::Object(arguments.clone())));
                let listed: Vec<String> = parameters(&schema).into_iter().map(|parameter| parameter.name).collect();
                let near = arguments.keys().any(|name| !listed.contains(name)
                    && listed.iter().any(|real| !arguments.contains_key(real) && is_near_miss(name, real)));
                let renamed = arguments.keys().any(|name| !listed.contains(name)
                    && listed.iter().any(|real| identifier(real) == *name && !arguments.contains_key(real)));
                prop_assert!(!valid || near || renamed, "{message}");
            }
        }
    }
}

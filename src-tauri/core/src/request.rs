//! The arguments of `run_python`, checked once.

use serde_json::{Map, Value};

/// Longer source is refused: nothing a model writes comes near, and every copy of it is paid for.
const CODE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longer names of sessions are refused.
const SESSION_CHARS_MAX: usize = 100;

/// The session of a run that names none.
pub const SESSION_DEFAULT: &str = "default";

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonRequest {
    /// Python source, not blank.
    pub code: String,
    /// Servers this run may call; `None`: all enabled ones.
    pub servers: Option<Vec<String>>,
    /// Wall-clock limit.
    pub timeout_seconds: u64,
    /// Name of the set of variables.
    pub session: String,
    /// Arguments that mean nothing, for a remark in the reply.
    pub ignored: Vec<String>,
}

impl PythonRequest {
    /// The name of the run whose reply this asks for and for nothing else. Such a request needs no
    /// interpreter, which that run may still be using.
    pub fn collects(&self) -> Option<&str> {
        let inside = |text: &'_ str, name: &str| -> Option<(usize, usize)> {
            let rest = text.strip_prefix(name)?.trim_start().strip_prefix('(')?;
            let from = text.len() - rest.len();
            let to = from + rest.strip_suffix(')')?.len();
            Some((from, to))
        };
        let mut code = self.code.trim();
        for name in ["print", "await"] {
            match inside(code, name) {
                Some((from, to)) => code = code[from..to].trim(),
                None => code = code.strip_prefix("await ").unwrap_or(code).trim_start(),
            }
        }
        let code = code.strip_prefix("mcp.").unwrap_or(code);
        let (from, to) = inside(code, "runtime.result")?;
        let argument = code[from..to].trim();
        ['\'', '"'].iter().find_map(|quote| {
            let name = argument.strip_prefix(*quote)?.strip_suffix(*quote)?;
            let plain = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then_some(name)
        })
    }
}

/// Check `arguments`; the error is a sentence for the model.
pub fn parse(
    arguments: Map<String, Value>,
    timeout_seconds_default: u64,
    timeout_seconds_max: u64,
) -> Result<PythonRequest, String> {
    let mut code = None;
    let mut servers = None;
    let mut timeout_seconds = timeout_seconds_default.min(timeout_seconds_max);
    let mut session = SESSION_DEFAULT.to_owned();
    let mut ignored = Vec::new();
    for (name, value) in arguments {
        match (name.as_str(), value) {
            ("code", Value::String(text)) => code = Some(text),
            ("code", other) => return Err(wrong("code", "a string of Python source", &other)),
            ("servers" | "timeout" | "session", Value::Null) => {}
            ("servers", Value::Array(names)) => servers = Some(server_names(names)?),
            ("servers", other) => return Err(wrong("servers", "a list of server names", &other)),
            ("timeout", value) => {
                timeout_seconds = timeout(&value, timeout_seconds_max)?;
            }
            ("session", Value::String(name)) if name.trim().is_empty() => {
                return Err("`session` is blank: leave it out or give a name".to_owned());
            }
            ("session", Value::String(name)) if name.chars().count() > SESSION_CHARS_MAX => {
                return Err(format!(
                    "`session` is longer than {SESSION_CHARS_MAX} characters"
                ));
            }
            ("session", Value::String(name)) => session = name,
            ("session", other) => return Err(wrong("session", "a string", &other)),
            _ => ignored.push(name),
        }
    }
    let code = code.ok_or("`code` is missing: give the Python source to run")?;
    if code.trim().is_empty() {
        return Err("`code` is blank: give the Python source to run".to_owned());
    }
    if code.len() > CODE_BYTES_MAX {
        return Err(format!(
            "`code` is {} bytes long, more than {CODE_BYTES_MAX}",
            code.len()
        ));
    }
    Ok(PythonRequest {
        code,
        servers,
        timeout_seconds,
        session,
        ignored,
    })
}

fn server_names(names: Vec<Value>) -> Result<Vec<String>, String> {
    names
        .into_iter()
        .map(|name| match name {
            Value::String(name) => Ok(name),
            other => Err(wrong("servers", "a list of server names", &other)),
        })
        .collect()
}

fn timeout(value: &Value, seconds_max: u64) -> Result<u64, String> {
    let seconds = value
        .as_f64()
        .filter(|seconds| seconds.fract() == 0.0)
        .ok_or_else(|| wrong("timeout", "a whole number of seconds", value))?;
    if (1.0..=seconds_max as f64).contains(&seconds) {
        Ok(seconds as u64)
    } else {
        Err(format!(
            "`timeout` is {seconds} s, but must be from 1 to {seconds_max} s"
        ))
    }
}

fn wrong(argument: &str, expected: &str, given: &Value) -> String {
    let mut shown = given.to_string();
    if let Some((cut, _)) = shown.char_indices().nth(60) {
        shown.truncate(cut);
        shown.push('…');
    }
    format!("`{argument}` must be {expected}, not {shown}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]

    use serde_json::json;

    use super::*;

    fn parsed(arguments: Value) -> Result<PythonRequest, String> {
        let Value::Object(arguments) = arguments else {
            unreachable!("tests give objects")
        };
        parse(arguments, 30, 120)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        assert_eq!(
            parsed(json!({"code": "1", "servers": null, "explanation": "x"})),
            Ok(PythonRequest {
                code: "1".to_owned(),
                servers: None,
                timeout_seconds: 30,
                session: SESSION_DEFAULT.to_owned(),
                ignored: vec!["explanation".to_owned()],
            }),
        );
    }

    #[test]
    fn each_wrong_argument_is_named_with_what_it_should_be() {
        let cases = [
            (
                json!({}),
                "`code` is missing: give the Python source to run",
            ),
            (
                json!({"code": " \n"}),
                "`code` is blank: give the Python source to run",
            ),
            (
                json!({"code": 5}),
                "`code` must be a string of Python source, not 5",
            ),
            (
                json!({"code": "1", "servers": "github"}),
                "`servers` must be a list of server names, not \"github\"",
            ),
            (
                json!({"code": "1", "servers": [1]}),
                "`servers` must be a list of server names, not 1",
            ),
            (
                json!({"code": "1", "timeout": 0}),
                "`timeout` is 0 s, but must be from 1 to 120 s",
            ),
            (
                json!({"code": "1", "timeout": -3}),
                "`timeout` is -3 s, but must be from 1 to 120 s",
            ),
            (
                json!({"code": "1", "timeout": 121}),
                "`timeout` is 121 s, but must be from 1 to 120 s",
            ),
            (
                json!({"code": "1", "timeout": "5"}),
                "`timeout` must be a whole number of seconds, not \"5\"",
            ),
            (
                json!({"code": "1", "timeout": 1.5}),
                "`timeout` must be a whole number of seconds, not 1.5",
            ),
            (
                json!({"code": "1", "session": ""}),
                "`session` is blank: leave it out or give a name",
            ),
        ];
        for (arguments, message) in cases {
            assert_eq!(
                parsed(arguments.clone()),
                Err(message.to_owned()),
                "{arguments}"
            );
        }
    }

    #[test]
    fn code_that_only_collects_a_run_is_told_from_code_that_does_more() {
        let of = |code: &str| {
            let request = parsed(json!({ "code": code })).unwrap();
            request.collects().map(str::to_owned)
        };
        let name = "00c0ffee00c0ffee";
        for code in [
            "runtime.result('00c0ffee00c0ffee')",
            " print(runtime.result( \"00c0ffee00c0ffee\" ))\n",
            "await runtime.result('00c0ffee00c0ffee')",
            "print(await mcp.runtime.result('00c0ffee00c0ffee'))",
        ] {
            assert_eq!(of(code).as_deref(), Some(name), "{code}");
        }
        for code in [
            "runtime.result('00c0ffee00c0ffee').stdout",
            "runtime.result('00c0ffee00c0ffee') or runtime.result('00c0ffee00c0ffee')",
            "runtime.result('00c0ffee')",
            "runtime.result(name)",
            "x = runtime.result('00c0ffee00c0ffee')",
            "runtime.result('00c0ffee00c0ffee\")",
            "'runtime.result'",
        ] {
            assert_eq!(of(code), None, "{code}");
        }
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        assert_eq!(
            parsed(json!({"code": "1", "timeout": 5.0})).map(|r| r.timeout_seconds),
            Ok(5)
        );
    }
}

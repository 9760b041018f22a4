//! Whether what the product says is what the protocol says: each message against the JSON schema of
//! the revision that is in force when it is sent.
//!
//! The schemas are the protocol's own, unchanged, in `tests/fixtures/mcp-schema`. What the other
//! side says is looked at only for what it makes of the answers to come; it may be as wrong as a
//! test wants.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// The revisions with their schemas, oldest first.
static SCHEMAS: LazyLock<[Schema; 5]> = LazyLock::new(|| {
    [
        Schema::new(
            "2024-11-05",
            include_str!("../fixtures/mcp-schema/2024-11-05.json"),
        ),
        Schema::new(
            "2025-03-26",
            include_str!("../fixtures/mcp-schema/2025-03-26.json"),
        ),
        Schema::new(
            "2025-06-18",
            include_str!("../fixtures/mcp-schema/2025-06-18.json"),
        ),
        Schema::new(
            "2025-11-25",
            include_str!("../fixtures/mcp-schema/2025-11-25.json"),
        ),
        Schema::new(
            "2026-07-28",
            include_str!("../fixtures/mcp-schema/2026-07-28.json"),
        ),
    ]
});

/// The newest revision that greets, in force before anything else is settled.
const GREETING: usize = 3;

/// The revision without a greeting.
const STATELESS: usize = 4;

/// Requests of an extension, of which the schemas say only that they are requests.
const OF_EXTENSIONS: [(&str, &str); 3] = [
    ("2026-07-28", "tasks/get"),
    ("2026-07-28", "tasks/update"),
    ("2026-07-28", "tasks/cancel"),
];

/// Where a request of that revision says which it is.
const REVISION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Which end the product is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its messages are those of a server.
    Server,
    /// Its messages are those of a client.
    Client,
}

/// One conversation, of which the product's messages are checked.
#[derive(Debug)]
pub struct WireCheck {
    side: Side,
    /// What greeting settled.
    greeted: Option<usize>,
    /// A request that needs no greeting has been seen.
    stateless: bool,
    /// Requests of either side by id: whose it is, its method, the revision of the answer.
    open: HashMap<(bool, String), (String, usize)>,
}

impl WireCheck {
    /// A conversation that has not begun.
    pub fn of(side: Side) -> Self {
        Self {
            side,
            greeted: None,
            stateless: false,
            open: HashMap::new(),
        }
    }

    /// What the other side said.
    pub fn hear(&mut self, message: &Value) {
        self.note(message, false);
    }

    /// What the product said: an error says what is wrong with it.
    pub fn say(&mut self, message: &Value) -> Result<(), String> {
        let verdict = self.judge(message);
        self.note(message, true);
        verdict.map_err(|wrong| {
            let text: String = message.to_string().chars().take(600).collect();
            format!("{wrong}\nin {text}")
        })
    }

    fn judge(&self, message: &Value) -> Result<(), String> {
        if let Some(method) = message["method"].as_str() {
            let schema = &SCHEMAS[self.revision_of(message)];
            let kind = if message.get("id").is_some() {
                "Request"
            } else {
                "Notification"
            };
            let side = match self.side {
                Side::Server => "Server",
                Side::Client => "Client",
            };
            schema.check(&format!("JSONRPC{kind}"), message)?;
            if OF_EXTENSIONS.contains(&(schema.revision, method)) {
                return Ok(());
            }
            let definition = schema
                .definition_of(&format!("{side}{kind}"), method)
                .ok_or_else(|| {
                    format!(
                        "{} knows no {kind} `{method}` of this side",
                        schema.revision
                    )
                })?;
            return schema.check(definition, message);
        }
        let asked = self.open.get(&(false, id_of(message)));
        let (method, revision) = match asked {
            Some((method, revision)) => (method.as_str(), *revision),
            // What could not be read has no id, and its answer none that is known.
            None if message.get("error").is_some() => ("", self.in_force()),
            None => return Err("an answer to no request".to_owned()),
        };
        // What the greeting settles is in force for its answer.
        let revision = match message["result"]["protocolVersion"].as_str() {
            Some(settled) if method == "initialize" => {
                position(settled).ok_or_else(|| format!("there is no revision `{settled}`"))?
            }
            _ => revision,
        };
        let schema = &SCHEMAS[revision];
        if message.get("error").is_some() {
            return schema.check(schema.error_definition(), message);
        }
        match schema.answer_to(method) {
            Some(Answer::Whole(definition)) => schema.check(&definition, message),
            Some(Answer::Result(definition)) => {
                schema.check(schema.result_definition(), message)?;
                schema.check(&definition, &message["result"])
            }
            // Asking it was wrong, and nothing says what an answer has to be.
            None => Ok(()),
        }
    }

    fn note(&mut self, message: &Value, ours: bool) {
        if let Some(method) = message["method"].as_str() {
            let revision = self.revision_of(message);
            self.stateless |= revision == STATELESS;
            if message.get("id").is_some() {
                self.open
                    .insert((ours, id_of(message)), (method.to_owned(), revision));
            }
        } else if let Some((method, _)) = self.open.remove(&(!ours, id_of(message)))
            && method == "initialize"
            && message.get("result").is_some()
        {
            // A revision that nobody knows is spoken to as the newest that greets.
            let settled = message["result"]["protocolVersion"].as_str();
            self.greeted = Some(settled.and_then(position).unwrap_or(GREETING));
        }
    }

    /// The revision of a request or a notification.
    fn revision_of(&self, message: &Value) -> usize {
        let params = &message["params"];
        let named = params["_meta"][REVISION_KEY]
            .as_str()
            // One that does not exist is answered in the words of the newest.
            .map(|revision| position(revision).unwrap_or(STATELESS));
        match message["method"].as_str() {
            Some("initialize") => params["protocolVersion"]
                .as_str()
                .and_then(position)
                .filter(|revision| *revision <= GREETING)
                .unwrap_or(GREETING),
            Some("server/discover") => STATELESS,
            _ => named.unwrap_or_else(|| self.in_force()),
        }
    }

    fn in_force(&self) -> usize {
        match self.greeted {
            Some(revision) => revision,
            None if self.stateless => STATELESS,
            None => GREETING,
        }
    }
}

fn position(revision: &str) -> Option<usize> {
    SCHEMAS
        .iter()
        .position(|schema| schema.revision == revision)
}

fn id_of(message: &Value) -> String {
    message["id"].to_string()
}

/// How the answer to a request is described.
enum Answer {
    /// The message as a whole.
    Whole(String),
    /// Its `result`.
    Result(String),
}

struct Schema {
    revision: &'static str,
    text: &'static str,
    parsed: OnceLock<Value>,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Schema {
    fn new(revision: &'static str, text: &'static str) -> Self {
        Self {
            revision,
            text,
            parsed: OnceLock::new(),
            validators: Mutex::default(),
        }
    }

    fn whole(&self) -> &Value {
        self.parsed
            .get_or_init(|| serde_json::from_str(self.text).unwrap())
    }

    /// Where the definitions are: the place has had two names.
    fn place(&self) -> &'static str {
        if self.whole().get("$defs").is_some() {
            "$defs"
        } else {
            "definitions"
        }
    }

    fn definitions(&self) -> &Map<String, Value> {
        self.whole()[self.place()].as_object().unwrap()
    }

    /// The definition of `method` among those that `union` names.
    fn definition_of(&self, union: &str, method: &str) -> Option<&str> {
        let definitions = self.definitions();
        let union = definitions.get(union)?;
        let alternatives = match union.get("anyOf") {
            Some(several) => several.as_array().unwrap().as_slice(),
            None => std::slice::from_ref(union),
        };
        alternatives.iter().find_map(|one| {
            let name = one["$ref"].as_str()?.rsplit('/').next()?;
            (definitions.get(name)?["properties"]["method"]["const"] == method).then_some(name)
        })
    }

    fn answer_to(&self, method: &str) -> Option<Answer> {
        let definitions = self.definitions();
        let request = ["ClientRequest", "ServerRequest"]
            .iter()
            .find_map(|union| self.definition_of(union, method))?;
        let stem = request.strip_suffix("Request")?;
        let whole = format!("{stem}ResultResponse");
        if definitions.contains_key(&whole) {
            return Some(Answer::Whole(whole));
        }
        let result = format!("{stem}Result");
        Some(Answer::Result(if definitions.contains_key(&result) {
            result
        } else {
            "EmptyResult".to_owned()
        }))
    }

    fn error_definition(&self) -> &'static str {
        self.first_of(["JSONRPCErrorResponse", "JSONRPCError"])
    }

    fn result_definition(&self) -> &'static str {
        self.first_of(["JSONRPCResultResponse", "JSONRPCResponse"])
    }

    fn first_of(&self, names: [&'static str; 2]) -> &'static str {
        names[usize::from(!self.definitions().contains_key(names[0]))]
    }

    fn check(&self, definition: &str, value: &Value) -> Result<(), String> {
        let validator = self.validator(definition);
        let wrong: Vec<String> = validator
            .iter_errors(value)
            .take(3)
            .map(|error| format!("{} at `{}`", error, error.instance_path()))
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        Err(format!(
            "not a {definition} of {}: {}",
            self.revision,
            wrong.join("; ")
        ))
    }

    /// A definition and all that it refers to: a tenth of the whole, which takes long to compile.
    fn reached_from(&self, definition: &str) -> Map<String, Value> {
        let mut reached = Map::new();
        let mut ahead = vec![definition.to_owned()];
        while let Some(name) = ahead.pop() {
            if let Some(found) = self.definitions().get(&name)
                && !reached.contains_key(&name)
            {
                references(found, &mut ahead);
                reached.insert(name, found.clone());
            }
        }
        reached
    }

    fn validator(&self, definition: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap();
        let known = validators.entry(definition.to_owned());
        Arc::clone(known.or_insert_with(|| {
            let place = self.place();
            let mut schema = json!({ "$schema": self.whole()["$schema"] });
            schema["$ref"] = format!("#/{place}/{definition}").into();
            schema[place] = self.reached_from(definition).into();
            let validator = jsonschema::options()
                .should_validate_formats(true)
                .build(&schema)
                .unwrap();
            Arc::new(validator)
        }))
    }
}

/// The names of the definitions that `schema` refers to.
fn references(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(reference) if key == "$ref" => {
                        names.extend(reference.rsplit('/').next().map(str::to_owned));
                    }
                    _ => references(value, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted(side: Side, revision: &str) -> WireCheck {
        let mut check = WireCheck::of(side);
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": {},
            "clientInfo": { "name": "c", "version": "1" },
        }});
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {
            "protocolVersion": revision, "capabilities": {},
            "serverInfo": { "name": "s", "version": "1" },
        }});
        match side {
            Side::Server => {
                check.hear(&request);
                check.say(&answer).unwrap();
            }
            Side::Client => {
                check.say(&request).unwrap();
                check.hear(&answer);
            }
        }
        check
    }

    fn request(id: u64, method: &str) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": method })
    }

    fn answer(id: u64, result: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "result": result })
    }

    #[test]
    fn each_revision_has_its_own_idea_of_an_answer() {
        let list = json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] });
        for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let mut check = greeted(Side::Server, revision);
            check.hear(&request(2, "tools/list"));
            check.say(&answer(2, list.clone())).unwrap();
            check.hear(&request(3, "tools/list"));
            let wrong = check.say(&answer(3, json!({ "tools": {} }))).unwrap_err();
            assert!(
                wrong.contains(&format!("ListToolsResult of {revision}")),
                "{wrong}"
            );
        }
        let mut check = WireCheck::of(Side::Server);
        let mut stateless = request(4, "tools/list");
        stateless["params"] = json!({ "_meta": { REVISION_KEY: "2026-07-28" } });
        check.hear(&stateless);
        let wrong = check.say(&answer(4, list)).unwrap_err();
        assert!(
            wrong.contains("resultType") || wrong.contains("ttlMs"),
            "{wrong}"
        );
    }

    #[test]
    fn structured_content_became_free_with_the_newest_revision() {
        let content = json!({ "content": [], "structuredContent": 5 });
        let mut check = greeted(Side::Server, "2025-11-25");
        check.hear(&request(2, "tools/call"));
        assert!(check.say(&answer(2, content.clone())).is_err());
        let mut stateless = request(3, "tools/call");
        stateless["params"] = json!({ "_meta": { REVISION_KEY: "2026-07-28" } });
        check.hear(&stateless);
        let mut complete = content;
        complete["resultType"] = "complete".into();
        check.say(&answer(3, complete)).unwrap();
    }

    #[test]
    fn a_message_that_is_not_of_this_side_or_this_revision_is_told() {
        let mut check = greeted(Side::Client, "2025-11-25");
        check.say(&request(2, "ping")).unwrap();
        let wrong = check.say(&request(3, "server/discovered")).unwrap_err();
        assert!(wrong.contains("knows no Request"), "{wrong}");
        let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        let wrong = check.say(&news).unwrap_err();
        assert!(wrong.contains("of this side"), "{wrong}");
        greeted(Side::Server, "2025-11-25").say(&news).unwrap();
        let wrong = check.say(&answer(77, json!({}))).unwrap_err();
        assert!(wrong.contains("no request"), "{wrong}");
    }

    #[test]
    fn an_error_needs_its_parts() {
        let mut check = greeted(Side::Server, "2025-06-18");
        check.hear(&request(2, "tools/list"));
        let error = json!({ "jsonrpc": "2.0", "id": 2, "error": { "code": -1 } });
        let wrong = check.say(&error).unwrap_err();
        assert!(wrong.contains("message"), "{wrong}");
    }
}

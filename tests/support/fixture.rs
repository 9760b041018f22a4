//! One bridge under test: its home, its engine, the client that drives it and what it may not leave.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{Closed, Engine, Era, Leftovers, McpClient, Reply, TempHome, image};

/// What a bridge starts with.
pub struct BridgeOptions {
    program: PathBuf,
    engine: Engine,
    servers: Map<String, Value>,
    variables: Vec<(String, String)>,
    settings: Option<Value>,
    era: Era,
}

impl BridgeOptions {
    /// A bridge of `program` on `engine`, with no servers.
    pub fn new(program: impl Into<PathBuf>, engine: Engine) -> Self {
        Self {
            program: program.into(),
            engine,
            servers: Map::new(),
            variables: Vec::new(),
            settings: None,
            era: Era::Initialize("2025-11-25"),
        }
    }

    /// Name a server.
    #[must_use]
    pub fn server(mut self, name: &str, entry: Value) -> Self {
        self.servers.insert(name.to_owned(), entry);
        self
    }

    /// Name several.
    #[must_use]
    pub fn servers(mut self, servers: Map<String, Value>) -> Self {
        self.servers.extend(servers);
        self
    }

    /// Set a variable of the bridge.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Start with this settings file.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Greet in this way.
    #[must_use]
    pub fn era(mut self, era: Era) -> Self {
        self.era = era;
        self
    }

    /// Start in `home`.
    pub fn start(self, home: TempHome) -> Bridge {
        if !self.servers.is_empty() {
            home.write_servers(&self.servers);
        }
        if let Some(settings) = self.settings {
            home.write(".runbridge/config/settings.json", &settings.to_string());
        }
        home.share_compiled_python(&self.program);
        let mut variables = self.engine.variables();
        let ours = home.join(".runbridge").to_string_lossy().into_owned();
        variables.push(("RUNBRIDGE_HOME".to_owned(), ours));
        variables.push(("MCP_BRIDGE_IMAGE".to_owned(), image()));
        for (name, value) in self.variables {
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value));
        }
        let leftovers = Leftovers::of(home.path(), Some(self.engine));
        let mut bridge = Bridge {
            client: None,
            greeting: Value::Null,
            leftovers,
            home,
            program: self.program,
            variables,
            era: self.era,
        };
        bridge.start_client();
        bridge
    }
}

/// A running bridge.
pub struct Bridge {
    client: Option<McpClient>,
    greeting: Value,
    leftovers: Leftovers,
    home: TempHome,
    program: PathBuf,
    variables: Vec<(String, String)>,
    era: Era,
}

impl Bridge {
    fn start_client(&mut self) {
        let (client, greeting) = self.another_client();
        self.client = Some(client);
        self.greeting = greeting;
    }

    /// A second sidecar in the same home, as a second MCP client would start it.
    pub fn another_client(&self) -> (McpClient, Value) {
        McpClient::start(
            &self.program,
            &[],
            self.home.path(),
            &self.variables,
            self.era,
        )
        .unwrap_or_else(|error| {
            let log = std::fs::read_to_string(self.home.join("stderr.log")).unwrap_or_default();
            panic!("the bridge did not greet: {error}\nstderr:\n{log}")
        })
    }

    /// The client that drives it.
    pub fn client(&self) -> &McpClient {
        self.client.as_ref().unwrap()
    }

    /// What it answered to the greeting.
    pub fn greeting(&self) -> &Value {
        &self.greeting
    }

    /// Its home.
    pub fn home(&self) -> &TempHome {
        &self.home
    }

    /// The sidecar's binary.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The variables it was started with.
    pub fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// What it may not leave behind.
    pub fn leftovers(&mut self) -> &mut Leftovers {
        &mut self.leftovers
    }

    /// Run code.
    pub fn run(&self, code: &str) -> Reply {
        self.client().run(code)
    }

    /// Run code with these arguments.
    pub fn run_with(&self, arguments: Value) -> Reply {
        self.client().run_with(arguments)
    }

    /// Run code that must succeed; its stdout.
    #[track_caller]
    pub fn prints(&self, code: &str) -> String {
        let reply = self.run(code);
        assert_eq!(
            reply.status(),
            "success",
            "of\n{code}\nreply: {}",
            reply.result
        );
        reply.stdout().to_owned()
    }

    /// Run code that must succeed and print one JSON document; the document.
    #[track_caller]
    pub fn json(&self, code: &str) -> Value {
        let text = self.prints(code);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
    }

    /// Run code that must end with `status`.
    #[track_caller]
    pub fn ends(&self, code: &str, timeout_seconds: u64, status: &str) -> Reply {
        let reply = self.run_with(json!({ "code": code, "timeout": timeout_seconds }));
        assert_eq!(
            reply.status(),
            status,
            "reply: {}",
            shortened(&reply.result)
        );
        assert_eq!(
            reply.is_error(),
            status != "success",
            "isError of {}",
            shortened(&reply.result)
        );
        reply
    }

    /// Three more runs must work: the bridge goes on.
    #[track_caller]
    pub fn assert_goes_on(&self) {
        for number in 0..3 {
            let printed = self.prints(&format!("print('alive', {number})"));
            assert_eq!(printed, format!("alive {number}\n"));
        }
    }

    /// End the sidecar as a client does, and start it anew in the same home.
    pub fn restart(&mut self) -> Closed {
        let closed = self.end();
        self.leftovers.assert_none();
        self.start_client();
        closed
    }

    /// End the sidecar as a client does: its stdin closes. It must go by itself, leave nothing, and
    /// have written nothing but JSON-RPC.
    pub fn close(mut self) -> Closed {
        let closed = self.end();
        self.leftovers.assert_none();
        closed
    }

    /// End the sidecar by SIGKILL. Nothing that runs may be left even then; a container that the
    /// engine was creating at that moment never starts, and the next sidecar removes it.
    pub fn kill(mut self) {
        self.leftovers.note_owner();
        self.client.take().unwrap().kill();
        self.leftovers.assert_nothing_runs();
        self.start_client();
        self.run("pass");
        self.close();
    }

    fn end(&mut self) -> Closed {
        self.leftovers.note_owner();
        let client = self.client.take().unwrap();
        let impure = client.impure();
        assert!(
            impure.is_empty(),
            "stdout must carry JSON-RPC alone: {impure:?}"
        );
        let closed = client.close();
        assert!(
            !closed.killed,
            "the bridge did not end when its stdin closed"
        );
        assert!(
            closed.status.success(),
            "the bridge ended with {}",
            closed.status
        );
        closed
    }
}

/// A reply short enough for a message.
fn shortened(result: &Value) -> String {
    let text = result.to_string();
    if text.len() < 3000 {
        text
    } else {
        text.chars().take(3000).collect::<String>() + "…"
    }
}

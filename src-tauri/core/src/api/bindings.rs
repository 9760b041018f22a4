//! The window's types, written from ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ts_rs::{Config, TS, TypeVisitor};

use super::{BridgeEvent, EVENT, command};

/// Takes the table of commands one piece at a time.
pub(super) trait Signatures {
    /// The next command begins.
    fn command(&mut self, name: &str, about: &str);
    /// It takes this.
    fn argument<T: TS + 'static>(&mut self, name: &str);
    /// It gives this, and ends.
    fn result<T: TS + 'static>(&mut self);
}

/// The text of `bindings.ts`.
pub fn bindings() -> String {
    let mut writer = Writer {
        // Sizes and times stay far below 2^53, so that a plain number holds them.
        config: Config::new().with_large_int("number"),
        types: BTreeMap::new(),
        commands: String::new(),
        arguments: Vec::new(),
    };
    writer.visit::<BridgeEvent>();
    command::signatures(&mut writer);

    let mut text = String::from(
        "// Written by `cargo xtask bindings` from runbridge-core::api. Change the types there.\n",
    );
    for declaration in writer.types.values() {
        let _ = write!(text, "\n{declaration}\n");
    }
    let _ = write!(
        text,
        "\n/** Every command with its arguments and its result. */\nexport interface Commands {{\n{}}}\n",
        writer.commands
    );
    let _ = write!(
        text,
        "\n/** The name of the one event; its payload is a BridgeEvent. */\nexport const EVENT = '{EVENT}';\n"
    );
    text
}

struct Writer {
    config: Config,
    types: BTreeMap<String, String>,
    commands: String,
    arguments: Vec<String>,
}

impl TypeVisitor for Writer {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // What has no file of its own (numbers, lists, options) has no declaration either.
        if T::output_path().is_some() {
            let name = T::ident(&self.config);
            if self.types.contains_key(&name) {
                return;
            }
            let docs = T::docs().unwrap_or_default();
            let declaration = one_line_comments(&format!("{docs}export {}", T::decl(&self.config)));
            self.types.insert(name, declaration);
        }
        T::visit_dependencies(self);
        T::visit_generics(self);
    }
}

impl Signatures for Writer {
    fn command(&mut self, name: &str, about: &str) {
        let _ = write!(self.commands, "  /** {about} */\n  {name}: {{ ");
    }

    fn argument<T: TS + 'static>(&mut self, name: &str) {
        self.visit::<T>();
        self.arguments
            .push(format!("{}: {}", camel_case(name), T::name(&self.config)));
    }

    fn result<T: TS + 'static>(&mut self) {
        self.visit::<T>();
        let arguments = if self.arguments.is_empty() {
            "Record<string, never>".to_owned()
        } else {
            format!("{{ {} }}", self.arguments.join("; "))
        };
        self.arguments.clear();
        let _ = writeln!(
            self.commands,
            "arguments: {arguments}; result: {} }};",
            T::name(&self.config)
        );
    }
}

/// Comments of one line on one line: most are, and three lines for each hide the types.
fn one_line_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    let mut rest = lines.as_slice();
    while let [line, after @ ..] = rest {
        match after {
            [about, " */", after @ ..] if *line == "/**" => {
                out.push(format!("/**{} */", about.trim_start_matches(" *")));
                rest = after;
            }
            _ => {
                out.push(line.trim_end().to_owned());
                rest = after;
            }
        }
    }
    out.join("\n")
}

fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(1.min(part.len()));
        text.push_str(&first.to_ascii_uppercase());
        text.push_str(rest);
    }
    text
}

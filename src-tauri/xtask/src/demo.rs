//! The product at work on real input: an MCP client starts the sidecar, the sidecar starts three
//! real servers, and the Python shown here finds them, calls them together, computes and remembers.
//! It fails when a reply is not what it should be.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use runbridge_testkit::{Components, Engine, Era, McpClient, Reply, TempHome};
use serde_json::{Map, Value, json};

use crate::engine;
use crate::guest;
use crate::setup;
use crate::shell::{build_sidecar, target};
use crate::tokens;

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Build and show the release binary.
    #[arg(long)]
    release: bool,
}

const SERVERS: &[&str] = &["filesystem", "sqlite", "time"];

const ORDERS: &str = "\
region,product,amount
north,lamp,120
south,lamp,80
north,chair,250
west,desk,410
south,desk,395
west,chair,160
";

const DISCOVER: &str = r#"
for server in runtime.discovered_servers(detailed=True):
    print(f"{server.name}: {server.state}")
print()
for tool in await runtime.search_tool_docs("read a file's text; run a SQL query; current time", limit=6):
    print(f"mcp_{tool.server}.{tool.signature}")
"#;

const WORK: &str = r#"
import ast, csv, io, asyncio

orders, now, _ = await asyncio.gather(
    mcp_filesystem.read_text_file(path="{FILES}/orders.csv"),
    mcp_time.get_current_time(timezone="Europe/Berlin"),
    mcp_sqlite.create_table(query="CREATE TABLE IF NOT EXISTS orders (region TEXT, product TEXT, amount INTEGER)"),
)
rows = list(csv.DictReader(io.StringIO(orders["content"])))
values = ", ".join(f"('{row['region']}', '{row['product']}', {row['amount']})" for row in rows)
await mcp_sqlite.write_query(query=f"INSERT INTO orders VALUES {values}")
table = await mcp_sqlite.read_query(query="SELECT region, sum(amount) AS total FROM orders GROUP BY region ORDER BY total DESC")
totals = {row["region"]: row["total"] for row in ast.literal_eval(table)}
print(f"{len(rows)} orders; by region: {totals}")
print("read in Berlin on a", now["day_of_week"])
"#;

const REMEMBER: &str = r#"
best = max(totals, key=totals.get)
save_memory("orders/best_region", {"region": best, "total": totals[best]}, metadata={"from": "orders.csv"})
best
"#;

const RECALL: &str = r#"
best = load_memory("orders/best_region")
print(f"remembered from before the restart: {best['region']} with {best['total']}")
print("variables of before are gone:", "totals" not in globals())
"#;

/// `cargo xtask demo`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let components = Components::at(&setup::run_all()?);
    guest::run(&guest::Arguments::default())?;
    let program = build_sidecar(arguments.release)?;
    let engines = engine::for_demo(&target().join("engines"))?;
    let engine = &engines.first_or_builtin();

    let home = TempHome::new();
    home.share_compiled_python(&program);
    home.write("files/orders.csv", ORDERS);
    let servers = components.entries(SERVERS, &home);
    home.write_servers(&servers);

    let show = Show { colour: coloured() };
    show.title(&format!(
        "Three real MCP servers ({}) behind one tool, in {}",
        SERVERS.join(", "),
        if engine.is_builtin() {
            "the built-in sandbox".to_owned()
        } else {
            format!("containers of {}", engine.name)
        }
    ));

    let client = start(&program, engine, &home, &show)?;
    let tools = client.request("tools/list", json!({}))?;
    let run_python = tools["tools"].as_array().cloned().unwrap_or_default();
    ensure!(run_python.len() == 1, "one tool expected, got {tools}");

    show.step(&client, "Find out what is there", DISCOVER, |reply| {
        let has = |word: &str| reply.stdout().contains(word);
        ensure!(
            SERVERS.iter().all(|server| has(server)),
            "a server is missing"
        );
        ensure!(
            has("read_text_file") && has("read_query") && has("get_current_time"),
            "the search missed a tool"
        );
        Ok(())
    })?;
    let work = WORK.replace("{FILES}", &home.join("files").to_string_lossy());
    show.step(
        &client,
        "Call three servers together and compute",
        &work,
        |reply| {
            ensure!(
                reply.stdout().starts_with(
                    "6 orders; by region: {'west': 570, 'south': 475, 'north': 370}\n"
                ),
                "the totals are wrong"
            );
            ensure!(
                reply.stdout().contains("day\n"),
                "the time server gave no day"
            );
            Ok(())
        },
    )?;
    show.step(&client, "Remember", REMEMBER, |reply| {
        ensure!(
            reply.str("result") == "'west'",
            "the value of the last line is wrong"
        );
        Ok(())
    })?;
    end(client)?;

    show.title("The sidecar is started anew");
    let client = start(&program, engine, &home, &show)?;
    show.step(&client, "Recall", RECALL, |reply| {
        ensure!(
            reply.stdout()
                == "remembered from before the restart: west with 570\nvariables of before are gone: True\n",
            "the memory did not come back"
        );
        Ok(())
    })?;
    end(client)?;

    let theirs = tools_of(&servers, &home)?;
    let (ours, whole) = (tokens::of_tools(&run_python), tokens::of_tools(&theirs));
    show.title("What the model reads before it does anything (o200k tokens)");
    println!("  run_python          1 tool   {ours:>6}");
    println!("  the three servers  {:>2} tools  {whole:>6}", theirs.len());
    ensure!(ours <= 200, "run_python costs {ours} tokens, more than 200");
    Ok(())
}

fn start(
    program: &Path,
    engine: &Engine,
    home: &TempHome,
    show: &Show,
) -> anyhow::Result<McpClient> {
    let mut variables = engine.variables();
    variables.push(("MCP_BRIDGE_IMAGE".to_owned(), engine::image().to_owned()));
    let begun = std::time::Instant::now();
    let (client, greeting) = McpClient::start(
        program,
        &[],
        home.path(),
        &variables,
        Era::Initialize("2025-11-25"),
    )
    .context("the sidecar did not answer `initialize`")?;
    let server = &greeting["serverInfo"];
    show.fact(&format!(
        "{} {} answered initialize after {}",
        server["name"].as_str().unwrap_or("?"),
        server["version"].as_str().unwrap_or("?"),
        milliseconds(begun.elapsed()),
    ));
    Ok(client)
}

fn end(client: McpClient) -> anyhow::Result<()> {
    let impure = client.impure();
    ensure!(
        impure.is_empty(),
        "stdout carried more than JSON-RPC: {impure:?}"
    );
    let closed = client.close();
    ensure!(
        !closed.killed && closed.status.success(),
        "the sidecar ended with {}",
        closed.status
    );
    Ok(())
}

/// All tools of the servers, asked of each without the bridge.
fn tools_of(servers: &Map<String, Value>, home: &TempHome) -> anyhow::Result<Vec<Value>> {
    let mut tools = Vec::new();
    for (name, entry) in servers {
        let command = entry["command"].as_str().unwrap_or_default();
        let args: Vec<&str> = entry["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let (client, _) = McpClient::start(
            Path::new(command),
            &args,
            home.path(),
            &[],
            Era::Initialize("2025-11-25"),
        )
        .with_context(|| format!("{name} did not start"))?;
        let list = client
            .request("tools/list", json!({}))
            .with_context(|| format!("{name} lists no tools"))?;
        tools.extend(list["tools"].as_array().cloned().unwrap_or_default());
    }
    Ok(tools)
}

/// How the demo looks.
struct Show {
    colour: bool,
}

impl Show {
    fn title(&self, text: &str) {
        println!("\n{}\n", self.paint("1", text));
    }

    fn fact(&self, text: &str) {
        println!("{}\n", self.paint("2", text));
    }

    /// Run code, show it with its reply, and check the reply.
    fn step(
        &self,
        client: &McpClient,
        title: &str,
        code: &str,
        check: impl FnOnce(&Reply) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        println!("{}", self.paint("1;36", title));
        for line in code.trim().lines() {
            println!("  {}", self.paint("36", line));
        }
        let pending = client.send_run(json!({ "code": code, "timeout": 60 }));
        let reply = pending
            .reply()
            .with_context(|| format!("{title}: stderr:\n{}", client.stderr()))?;
        println!(
            "{}",
            self.paint(
                "2",
                &format!("  -- {} after {}", reply.status(), milliseconds(reply.took))
            )
        );
        for line in reply.text().trim_end().lines() {
            println!("  {line}");
        }
        println!();
        if reply.status() != "success" {
            bail!("{title}: the run ended with `{}`", reply.status());
        }
        check(&reply).with_context(|| title.to_owned())
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{style}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether stdout is a terminal that wants colours.
fn coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals() {
        assert_eq!(Show { colour: false }.paint("1", "x"), "x");
        assert_eq!(Show { colour: true }.paint("1", "x"), "\x1b[1mx\x1b[0m");
    }
}

//! Packages that code has installed: on both kinds of sandbox, from an index of the test's own.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use runbridge_testkit::{
    Bridge, BridgeOptions, Engine, Era, Index, Manner, McpClient, TempHome, Wheel, wait_for,
};
use serde_json::{Value, json};

use crate::{on, on_both_kinds, on_every_engine, on_every_sandbox};

on_every_sandbox!(
    an_installed_package_is_there_at_once_and_stays,
    nobody_can_write_where_packages_are,
);

on_every_engine!(a_container_sees_packages_once_they_are_allowed,);

on_both_kinds!(
    what_cannot_be_had_says_why_and_leaves_nothing,
    another_version_takes_the_place_of_the_first,
);

/// Settings that let code install from this index.
fn allowed(index: &Index) -> Value {
    settings(index, "allow")
}

fn settings(index: &Index, policy: &str) -> Value {
    json!({ "version": 1, "packages": { "policy": policy, "index": index.url() } })
}

fn start(engine: Engine, index: &Index) -> Bridge {
    on(engine).settings(allowed(index)).start(open_home())
}

/// A home that others may look into: the rootless engine of the tests is another user's.
fn open_home() -> TempHome {
    let home = TempHome::new();
    let mut folder = home.join(".runbridge/data/packages");
    std::fs::create_dir_all(&folder).unwrap();
    while folder.starts_with(home.path()) {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder.pop();
    }
    home
}

/// What lies in the folder that sandboxes see.
fn files(bridge: &Bridge) -> Vec<String> {
    let folder = bridge.home().join(".runbridge/data/packages/wheels");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn an_installed_package_is_there_at_once_and_stays(engine: Engine) {
    let index = Index::start();
    index.put(Wheel::new("tiny-table", "0.9").requires("tiny-dep>=1; sys_platform != 'win32'"));
    index.put(Wheel::new("tiny-table", "0.8"));
    index.put(Wheel::new("tiny-table", "1.0rc1"));
    index.put(
        Wheel::new("tiny-dep", "1.5")
            .requires("tiny-table")
            .requires("on-windows; sys_platform == 'win32'"),
    );
    let mut bridge = start(engine, &index);
    // Before it: a session that lives, and later sees it too.
    bridge.run_with(json!({ "code": "there = 1", "session": "other" }));
    let printed = bridge.prints(
        "print(runtime.install('tiny-table'))\nimport tiny_table, tiny_dep\nprint(tiny_table.VERSION, tiny_dep.VERSION)",
    );
    assert_eq!(
        printed,
        "[{'name': 'tiny-dep', 'version': '1.5'}, {'name': 'tiny-table', 'version': '0.9'}]\n0.9 1.5\n"
    );
    let files = files(&bridge);
    assert_eq!(
        files,
        [
            "tiny_dep-1.5-py3-none-any.whl",
            "tiny_table-0.9-py3-none-any.whl"
        ]
    );
    let use_it = "import tiny_table, importlib.metadata as m\nprint(tiny_table.__file__, m.version('tiny-table'))";
    let wanted = "/packages/tiny_table-0.9-py3-none-any.whl/tiny_table.py 0.9\n";
    for session in ["other", "new"] {
        let reply = bridge.run_with(json!({ "code": use_it, "session": session }));
        assert_eq!(reply.stdout(), wanted, "{session}: {}", reply.result);
    }
    // What is installed needs no index any more, neither here nor after a restart.
    drop(index);
    let again =
        "x = await runtime.install('tiny_table >= 0.5')\nprint([(p.name, p.version) for p in x])";
    assert_eq!(
        bridge.prints(again),
        "[('tiny-dep', '1.5'), ('tiny-table', '0.9')]\n"
    );
    bridge.restart();
    assert_eq!(bridge.prints(use_it), wanted);
    // A guest that was lost goes on with what it had.
    bridge.run("import os; os._exit(1)");
    assert_eq!(bridge.prints(use_it), wanted);
    bridge.close();
}

/// Bytes that do not get smaller when they are packed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(bytes).collect()
}

fn what_cannot_be_had_says_why_and_leaves_nothing(engine: Engine) {
    let builtin = engine.is_builtin();
    let index = Index::start();
    let one = |name: &str| Wheel::new(name, "1.0");
    index.put(one("native").tag("cp313-cp313-manylinux_2_17_x86_64"));
    index.put_source("sources");
    index.put(one("withdrawn").yanked());
    index.put(one("newer").python(">=3.99"));
    index.put(one("needs-native").requires("native"));
    index.put(one("changed").manner(Manner::Changed));
    index.put(one("unknown-hash").manner(Manner::NoHash));
    index.put(one("cut").manner(Manner::Cut));
    index.put(one("slip").file("../up.py", "x = 1"));
    index.put(one("impure").impure());
    index.put(one("hidden").file("hidden/fast.so", "ELF"));
    index.put(one("large").file("large.txt", noise(100 << 10)));
    index.put(one("left").requires("both<2"));
    index.put(one("right").requires("both>=2"));
    index.put(one("both"));
    index.put(Wheel::new("both", "2.0"));
    let mut settings = allowed(&index);
    settings["limits"] = json!({ "package_bytes_max": "64k" });
    let bridge = on(engine).settings(settings).start(TempHome::new());
    let native = if builtin {
        "native 1.0 has native code, and only pure Python can be installed; switch to Container in Sandbox settings"
    } else {
        "native 1.0 has native code, and only pure Python can be installed; the user can choose an image that has it"
    };
    for (wanted, told) in [
        ("'native'", native),
        (
            "'sources'",
            "sources comes as source alone, and nothing is built here",
        ),
        (
            "'withdrawn'",
            "withdrawn 1.0 was withdrawn by who published it",
        ),
        (
            "'newer'",
            "newer 1.0 needs Python >=3.99, and this sandbox has 3.",
        ),
        (
            "'needs-native'",
            "needs-native 1.0 needs another package: native 1.0 has native code",
        ),
        (
            "'nobody-has-this'",
            "the package index has no package named `nobody-has-this`",
        ),
        ("'both>7'", "no version of both is >7; the newest is 2.0"),
        (
            "'left', 'right'",
            "no version of both fits all: left 1.0 wants <2, right 1.0 wants >=2",
        ),
        (
            "'changed'",
            "changed-1.0-py3-none-any.whl is not installed: the index says that its sha256 is",
        ),
        ("'unknown-hash'", "the index tells no sha256 to know it by"),
        ("'cut'", "cannot be reached"),
        ("'slip'", "`../up.py` in it leads out of its place"),
        ("'impure'", "it says that it is not pure Python"),
        ("'hidden'", "`hidden/fast.so` in it is native code"),
        (
            "'large'",
            "and a package may have 65536 bytes; the user can raise limits.package_bytes_max",
        ),
        (
            "'tiny @ https://x.example/tiny.whl'",
            "packages come from the index alone",
        ),
        ("'--index-url=x'", "cannot be installed"),
        ("7", "install() takes names of packages"),
    ] {
        let reply = bridge.ends(&format!("runtime.install({wanted})"), 30, "error");
        assert!(reply.text().contains(told), "{wanted}: {}", reply.text());
    }
    assert_eq!(files(&bridge), [""; 0]);
    bridge.assert_goes_on();
    bridge.close();
}

fn nobody_can_write_where_packages_are(engine: Engine) {
    let index = Index::start();
    index.put(Wheel::new("tiny", "1.0"));
    let bridge = start(engine, &index);
    let printed = bridge.prints(
        "
import os
runtime.install('tiny')
path = '/packages/tiny-1.0-py3-none-any.whl'
before = open(path, 'rb').read()
def refused(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.strerror or 'refused'
    return 'done'
print({
    refused(open, path, 'r+b'), refused(open, path, 'wb'), refused(open, '/packages/new.whl', 'wb'),
    refused(os.remove, path), refused(os.rename, path, '/packages/other'), refused(os.mkdir, '/packages/x'),
    refused(os.symlink, '/tmp', '/packages/x'), refused(os.rmdir, '/packages'), refused(os.utime, path, (1, 1)),
    refused(os.truncate, path, 0), refused(os.rename, '/packages', '/tmp/packages'),
} - {'Read-only file system', 'Operation not permitted', 'Not supported', 'Device or resource busy',
     'Permission denied', 'Invalid cross-device link', 'Cross-device link', 'Directory not empty'})
print(os.listdir('/packages'), open(path, 'rb').read() == before)
",
    );
    assert_eq!(printed, "set()\n['tiny-1.0-py3-none-any.whl'] True\n");
    bridge.close();
}

fn another_version_takes_the_place_of_the_first(engine: Engine) {
    let index = Index::start();
    index.older_form();
    index.put(Wheel::new("tiny", "1.0"));
    index.put(Wheel::new("user", "1.0").requires("tiny<2"));
    let bridge = start(engine, &index);
    bridge.prints("runtime.install('tiny')");
    index.put(Wheel::new("tiny", "1.5"));
    index.put(Wheel::new("tiny", "2.0"));
    let printed = bridge
        .prints("print(runtime.install('tiny>1')[0].version)\nimport tiny\nprint(tiny.VERSION)");
    assert_eq!(printed, "2.0\n2.0\n");
    assert_eq!(files(&bridge), ["tiny-2.0-py3-none-any.whl"]);
    let reply = bridge.run("runtime.install('user')");
    assert_eq!(reply.status(), "success", "{}", reply.result);
    assert!(
        reply
            .text()
            .contains("tiny was imported before from elsewhere"),
        "{}",
        reply.text()
    );
    let reply = bridge.ends("runtime.install('tiny>=2')", 30, "error");
    let told = "tiny 2.0 would take the place of what user 1.0 needs (tiny<2)";
    assert!(reply.text().contains(told), "{}", reply.text());
    bridge.close();
}

#[test]
fn an_engine_that_cannot_see_the_folder_says_so_when_it_is_needed() {
    let Some(engine) = Engine::named("podman-rootless") else {
        return runbridge_testkit::skip("packages without a folder", "no rootless engine is there");
    };
    let index = Index::start();
    index.put(Wheel::new("tiny", "1.0"));
    // It is another user's, and may not look into this one.
    let bridge = on(engine).settings(allowed(&index)).start(TempHome::new());
    bridge.assert_goes_on();
    let reply = bridge.ends("runtime.install('tiny')", 30, "error");
    let told = "packages cannot be installed in this container, whose engine sees no folder of this machine";
    assert!(reply.text().contains(told), "{}", reply.text());
    assert!(index.asked().is_empty());
    bridge.close();
}

#[test]
fn a_file_that_was_replaced_on_the_index_is_refused() {
    let index = Index::start();
    index.put(Wheel::new("tiny", "1.0"));
    let bridge = start(Engine::builtin(), &index);
    bridge.prints("runtime.install('tiny')");
    assert_eq!(packages(&bridge, &["remove", "tiny"]), "tiny is removed\n");
    index.put(Wheel::new("tiny", "1.0").file("more.py", "evil = 1"));
    let reply = bridge.ends("runtime.install('tiny')", 30, "error");
    for told in [
        "it had the sha256",
        "when it was first installed here",
        "somebody replaced it",
    ] {
        assert!(reply.text().contains(told), "{}", reply.text());
    }
    bridge.close();
}

#[test]
fn an_index_that_cannot_be_reached_is_named() {
    let index = Index::start();
    let settings = allowed(&index);
    let address = index.url();
    drop(index);
    let bridge = on(Engine::builtin())
        .settings(settings)
        .start(TempHome::new());
    let reply = bridge.ends("runtime.install('tiny')", 30, "error");
    let told = format!("the package index: {address}/tiny/ cannot be reached");
    assert!(reply.text().contains(&told), "{}", reply.text());
    bridge.close();
}

#[test]
fn an_interrupted_installation_leaves_nothing_and_its_time_is_not_the_runs() {
    let index = Index::start();
    index.put(Wheel::new("stuck", "1.0").manner(Manner::Stuck));
    let bridge = start(Engine::builtin(), &index);
    let arguments = json!({ "code": "runtime.install('stuck')", "timeout": 1 });
    let call = json!({ "name": "run_python", "arguments": arguments });
    let pending = bridge.client().send_request("tools/call", call);
    index.wait_for("stuck-1.0-py3-none-any.whl");
    assert!(
        !pending.answered_within(Duration::from_secs(3)),
        "the run's second was over while it waited for the index"
    );
    bridge.client().cancel(pending.id);
    bridge.assert_goes_on();
    assert_eq!(files(&bridge), [""; 0]);
    let cache = bridge.home().join(".runbridge/cache/packages");
    assert!(!cache.exists(), "something was kept of it");
    bridge.close();
}

#[test]
fn the_client_hears_what_is_being_installed() {
    let index = Index::start();
    index.put(Wheel::new("stuck", "1.0").manner(Manner::Stuck));
    let bridge = start(Engine::builtin(), &index);
    let params = json!({
        "name": "run_python",
        "arguments": { "code": "runtime.install('stuck')" },
        "_meta": { "progressToken": "packages" },
    });
    let pending = bridge.client().send_request("tools/call", params);
    // What comes thick and fast is told now and then; where it stays is always told.
    let heard = || {
        let told = bridge.client().notifications("notifications/progress");
        told.iter()
            .filter_map(|one| Some(one["params"]["message"].as_str()?.to_owned()))
            .collect::<Vec<_>>()
    };
    let is_downloading = |message: &String| message.starts_with("downloading stuck 1.0");
    let told = wait_for(Duration::from_secs(30), || {
        heard().iter().any(is_downloading).then_some(())
    });
    assert!(told.is_some(), "{:?}", heard());
    bridge.client().cancel(pending.id);
    bridge.assert_goes_on();
    bridge.close();
}

/// A bridge that asks, and a second client of it that can.
fn asking(engine: Engine, index: &Index, offers: Value) -> (Bridge, McpClient) {
    let options: BridgeOptions = on(engine).settings(settings(index, "ask"));
    let bridge = options.start(open_home());
    let path = bridge.home().path().to_owned();
    let mut client = McpClient::spawn(bridge.program(), &[], &path, bridge.variables());
    client.offer(offers);
    client.greet(Era::Initialize("2025-06-18")).unwrap();
    (bridge, client)
}

/// Until somebody has said yes, a container sees nothing of this machine.
fn a_container_sees_packages_once_they_are_allowed(engine: Engine) {
    let index = Index::start();
    index.put(Wheel::new("one", "1.0"));
    let (bridge, client) = asking(engine, &index, json!({ "elicitation": {} }));
    let home = bridge.home().path().to_string_lossy().into_owned();
    let run = |code: &str, session: &str| {
        client.run_with(json!({ "code": code, "timeout": 30, "session": session }))
    };
    let mounts = run("print(open('/proc/self/mountinfo').read())", "first");
    assert_eq!(mounts.status(), "success", "{}", mounts.text());
    assert!(!mounts.stdout().contains(&home), "{}", mounts.stdout());
    let allow = json!({ "action": "accept", "content": { "allow": "this once" } });
    client.answer("elicitation/create", allow);
    let reply = run("runtime.install('one')", "first");
    assert_eq!(reply.status(), "error", "{}", reply.text());
    let told = "one can be imported in every session that begins now; this one began when packages were not \
                allowed yet";
    assert!(reply.text().contains(told), "{}", reply.text());
    let reply = run("import one\nprint(one.__file__)", "second");
    assert_eq!(
        reply.stdout(),
        "/packages/one-1.0-py3-none-any.whl/one.py\n",
        "{}",
        reply.text()
    );
    client.close();
    bridge.close();
}

#[test]
fn the_user_is_asked_and_their_word_counts() {
    let index = Index::start();
    for name in ["one", "two", "three", "four"] {
        index.put(Wheel::new(name, "1.0"));
    }
    let (bridge, client) = asking(Engine::builtin(), &index, json!({ "elicitation": {} }));
    let install = |name: &str| {
        let code = format!("print(runtime.install('{name}'))");
        client.run_with(json!({ "code": code, "timeout": 30 }))
    };
    let say = |word: &str| {
        let answer = json!({ "action": "accept", "content": { "allow": word } });
        client.answer("elicitation/create", answer);
    };
    say("no");
    let reply = install("one");
    assert!(
        reply
            .text()
            .contains("the user did not allow one to be installed"),
        "{}",
        reply.text()
    );
    let asked = client.asked().remove(0);
    let message = asked["params"]["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "Runbridge asks: May Python packages be installed? Wanted: one, from 127.0.0.1"
        ),
        "{message}"
    );
    assert!(
        index.asked().is_empty(),
        "the index was asked before the user"
    );
    client.answer("elicitation/create", json!({ "action": "decline" }));
    assert!(install("one").text().contains("did not allow"));
    say("this once");
    assert_eq!(install("one").status(), "success");
    // What is there needs no consent.
    assert_eq!(install("one").status(), "success");
    assert_eq!(client.asked().len(), 3);
    assert_eq!(install("two").status(), "success");
    say("always");
    assert_eq!(install("three").status(), "success");
    let written = std::fs::read_to_string(bridge.home().join(".runbridge/config/settings.json"));
    let written: Value = serde_json::from_str(&written.unwrap()).unwrap();
    assert_eq!(written["packages"]["policy"], "allow");
    assert_eq!(install("four").status(), "success");
    assert_eq!(client.asked().len(), 5, "asked again after `always`");
    client.close();
    bridge.close();
}

#[test]
fn without_anybody_to_ask_it_is_said_where_to_allow_it() {
    let index = Index::start();
    index.put(Wheel::new("tiny", "1.0"));
    let (bridge, client) = asking(Engine::builtin(), &index, json!({}));
    let reply = client.run_with(json!({ "code": "runtime.install('tiny')", "timeout": 30 }));
    for told in [
        "the user must allow this, and nobody could be asked: the client runbridge-testkit",
        "the user can allow packages in Sandbox settings",
        r#""packages": {"policy": "allow"}"#,
    ] {
        assert!(reply.text().contains(told), "{}", reply.text());
    }
    client.close();
    bridge.close();
}

#[test]
fn what_is_off_is_neither_installed_nor_seen() {
    let index = Index::start();
    index.put(Wheel::new("tiny", "1.0"));
    let bridge = start(Engine::builtin(), &index);
    let unknown = bridge.ends("import tiny", 10, "error");
    assert!(
        unknown.text().contains("`runtime.install('tiny')` gets it"),
        "{}",
        unknown.text()
    );
    bridge.prints("runtime.install('tiny')\nimport tiny");
    let off = settings(&index, "off").to_string();
    bridge.home().write(".runbridge/config/settings.json", &off);
    let gone = runbridge_testkit::wait_for(Duration::from_secs(20), || {
        let code = json!({ "code": "import sys\nsys.modules.pop('tiny', 0)\nimport tiny" });
        let reply = bridge.run_with(code);
        (reply.status() == "error").then_some(reply)
    });
    let reply = gone.expect("it is still there");
    assert!(
        reply.text().contains("No module named 'tiny'") && !reply.text().contains("install"),
        "{}",
        reply.text()
    );
    let reply = bridge.ends("runtime.install('tiny')", 10, "error");
    assert!(reply.text().contains("the user has switched packages off"));
    bridge.close();
}

/// What `runbridge packages` prints.
fn packages(bridge: &Bridge, arguments: &[&str]) -> String {
    let output = std::process::Command::new(bridge.program())
        .arg("packages")
        .args(arguments)
        .env_clear()
        .env("HOME", bridge.home().path())
        .env("TMPDIR", bridge.home().temp_dir())
        .envs(bridge.variables().iter().cloned())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn people_see_and_change_what_is_installed() {
    let index = Index::start();
    index.put(Wheel::new("tiny", "1.0").requires("dep"));
    index.put(Wheel::new("dep", "2.0"));
    let bridge = start(Engine::builtin(), &index);
    let none = packages(&bridge, &[]);
    assert!(none.starts_with("no packages are installed"), "{none}");
    let added = packages(&bridge, &["add", "tiny"]);
    assert_eq!(added, "dep 2.0 is there\ntiny 1.0 is there\n");
    assert_eq!(bridge.prints("import tiny\nprint(tiny.VERSION)"), "1.0\n");
    let listed: Value = serde_json::from_str(&packages(&bridge, &["list", "--json"])).unwrap();
    assert_eq!(listed["policy"], "allow");
    assert_eq!(listed["index"], "127.0.0.1");
    let about = |at: usize| {
        let package = &listed["packages"][at];
        [&package["name"], &package["version"], &package["wanted"]].map(ToString::to_string)
    };
    assert_eq!(about(0), ["\"dep\"", "\"2.0\"", "false"]);
    assert_eq!(about(1), ["\"tiny\"", "\"1.0\"", "true"]);
    let removed = packages(&bridge, &["remove", "tiny", "--json"]);
    assert_eq!(removed, "{\"removed\":true}\n");
    let reply = bridge.run_with(json!({ "code": "import tiny", "session": "new" }));
    assert_eq!(reply.status(), "error", "{}", reply.result);
    bridge.close();
}

//! Contract 7: the sandbox, seen from inside.

use runbridge_testkit::{Engine, TempHome};
use serde_json::{Value, json};

use crate::{on, on_every_engine};

on_every_engine!(
    it_has_no_network_no_rights_and_no_host,
    it_can_write_to_two_places_in_memory_alone,
    a_forged_frame_hurts_only_its_own_run,
    what_writes_to_descriptor_one_is_output_and_never_a_frame,
);

fn it_has_no_network_no_rights_and_no_host(engine: Engine) {
    let home = TempHome::new();
    let bridge = on(engine)
        .variable("AWS_SECRET_ACCESS_KEY", "of-the-host")
        .start(home);
    let facts = bridge.json(
        "
import json, os, socket
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
def attempt(call):
    try:
        return repr(call())
    except OSError as error:
        return type(error).__name__ + ' ' + str(error.errno)
print(json.dumps({
    'ids': [os.getuid(), os.getgid(), os.geteuid()],
    'caps': [status['CapEff'].strip(), status['CapBnd'].strip(), status['CapPrm'].strip()],
    'no_new_privs': status['NoNewPrivs'].strip(), 'seccomp': status['Seccomp'].strip(),
    'interfaces': sorted(name for _, name in socket.if_nameindex()),
    'connect': attempt(lambda: socket.create_connection(('1.1.1.1', 53), 2)),
    'env': sorted(os.environ), 'root': attempt(lambda: open('/etc/mark', 'w')),
    'setuid': attempt(lambda: os.setuid(0)), 'mounts': open('/proc/self/mountinfo').read(),
    'sockets': [path for path in ('/run/docker.sock', '/var/run/docker.sock', '/run/podman/podman.sock') if os.path.exists(path)],
    'hostname': socket.gethostname(),
}))",
    );
    assert_eq!(facts["ids"], json!([65534, 65534, 65534]));
    assert_eq!(facts["caps"], json!(vec!["0000000000000000"; 3]), "{facts}");
    assert_eq!(
        (&facts["no_new_privs"], &facts["seccomp"]),
        (&json!("1"), &json!("2"))
    );
    assert_eq!(facts["interfaces"], json!(["lo"]));
    assert!(
        facts["connect"].as_str().unwrap().starts_with("OSError"),
        "{facts}"
    );
    assert!(
        facts["root"].as_str().unwrap().contains("30"),
        "read-only file system expected: {}",
        facts["root"]
    );
    assert!(
        facts["setuid"]
            .as_str()
            .unwrap()
            .starts_with("PermissionError"),
        "{facts}"
    );
    assert_eq!(facts["sockets"], json!([]));
    let home = bridge.home().path().to_string_lossy().into_owned();
    assert!(
        !facts["mounts"].as_str().unwrap().contains(&home),
        "{}",
        facts["mounts"]
    );
    let names = facts["env"].as_array().unwrap();
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "SHELL",
        "RUNBRIDGE_HOME",
        "MCP_BRIDGE_IMAGE",
    ] {
        assert!(!names.contains(&json!(name)), "{name}: {names:?}");
    }
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    assert_ne!(facts["hostname"], host.trim());
    bridge.close();
}

fn it_can_write_to_two_places_in_memory_alone(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let facts = bridge.json(
        "
import json, os
facts = {}
for place, size in (('/tmp', 64), ('/workspace', 128)):
    kind = [line.split()[2] for line in open('/proc/mounts') if line.split()[1] == place]
    written = 0
    try:
        with open(place + '/fill', 'wb') as file:
            while written < 400:
                file.write(b'x' * (1 << 20))
                file.flush()
                written += 1
    except OSError as error:
        facts[place] = [kind, abs(written - size) <= 2, error.errno]
    else:
        facts[place] = [kind, 'no bound', written]
    os.remove(place + '/fill')
print(json.dumps(facts))",
    );
    assert_eq!(
        facts,
        json!({ "/tmp": [["tmpfs"], true, 28], "/workspace": [["tmpfs"], true, 28] })
    );
    bridge.assert_goes_on();
    bridge.close();
}

fn a_forged_frame_hurts_only_its_own_run(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let other = |code: &str| bridge.run_with(json!({ "code": code, "session": "other" }));
    assert_eq!(other("kept = 'safe'").status(), "success");
    // Whatever descriptor carries frames, it is among these. The first bytes are no frame's; the
    // second are the header of a giant one; the third tell of the end of a run that is not.
    for forged in [
        "b'\\xff' * 64",
        "b'\\x01\\x11\\x00\\x00' + b'\\xff' * 12",
        "b'\\x01\\x16\\x00\\x00' + b'\\x00' * 4 + b'\\x00' * 7 + b'\\x63'",
    ] {
        let code = format!(
            "import os, time\nprint('before', flush=True)\nfor name in os.listdir('/proc/self/fd'):\n    if int(name) > 2:\n        \
             try:\n            os.write(int(name), {forged})\n        except OSError:\n            pass\ntime.sleep(0.5)\nprint('survived')"
        );
        let reply = bridge.run_with(json!({ "code": code, "timeout": 10 }));
        let status = reply.status();
        assert!(
            status == "error" || (status == "success" && reply.stdout().contains("survived")),
            "{}",
            reply.result
        );
        assert_eq!(
            other("print(kept)").stdout(),
            "safe\n",
            "another session was hurt by {forged}"
        );
    }
    bridge.assert_goes_on();
    bridge.close();
}

fn what_writes_to_descriptor_one_is_output_and_never_a_frame(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let printed = bridge.prints(
        "
import os, subprocess, sys
print('one')
subprocess.run([sys.executable, '-c', 'print(\"two\")'])
subprocess.Popen([sys.executable, '-c', 'import os; os.write(1, b\"three\\\\n\")']).wait()
print('four')
os.write(1, b'five\\n')
os.write(1, b'\\x01\\x16\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01{}')
print('\\nsix')
",
    );
    let words: Vec<&str> = printed
        .lines()
        .filter(|line| line.chars().all(char::is_alphabetic))
        .collect();
    assert_eq!(
        words,
        ["one", "two", "three", "four", "five", "six"],
        "{printed:?}"
    );
    let value: Value = bridge.json("print('{\"type\": \"execution_done\"}')");
    assert_eq!(value["type"], "execution_done");
    bridge.close();
}

//! Which file a client reads, on each system, and what is never created.

use std::path::Path;

use runbridge_core::clients::connect::{Action, ConnectError, State};
use runbridge_core::paths::Os;

use crate::home::{Home, PROGRAM};

const FILE: &str = "claude_desktop_config.json";

#[test]
fn claude_desktop_is_found_in_each_of_its_places() {
    for (os, folder) in [
        (Os::Linux, ".config/Claude"),
        (Os::Linux, ".config/claude"),
        (Os::Macos, "Library/Application Support/Claude"),
        (Os::Windows, "AppData/Roaming/Claude"),
        (
            Os::Windows,
            "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude",
        ),
        (Os::Windows, "AppData/Local/Claude-Data/claude_x64"),
        (Os::Windows, "AppData/Local/Claude-Data"),
    ] {
        let home = Home::new(os);
        assert!(home.standing("claude-desktop").is_none(), "{folder}");
        // It was started once, and has no servers yet.
        std::fs::create_dir_all(home.path().join(folder)).unwrap();
        home.connect("Claude Desktop");
        let path = format!("{folder}/{FILE}");
        assert_eq!(
            home.read(&path),
            format!(
                "{{\n  \"mcpServers\": {{\n    \"runbridge\": {{\n      \"command\": \"{PROGRAM}\",\n      \"args\": []\n    }}\n  }}\n}}\n"
            )
        );
        assert_eq!(
            home.state("claude-desktop"),
            State::Connected {
                name: "runbridge".to_owned()
            }
        );
        home.disconnect("claude-desktop");
        assert!(
            !home.path().join(&path).exists(),
            "the file that we made is gone"
        );
    }
}

#[test]
fn a_client_that_is_not_there_gets_no_file() {
    let home = Home::new(Os::Windows);
    // A package that has never been started has no folder for its settings.
    std::fs::create_dir_all(home.path().join("AppData/Local/Packages/Claude_x")).unwrap();
    let error = home.act("claude-desktop", Action::Connect).err().unwrap();
    assert!(
        matches!(error, ConnectError::NotInstalled { .. }),
        "{error}"
    );
    for client in [
        "cursor",
        "codex",
        "goose",
        "zed",
        "vscode",
        "kiro",
        "junie",
        "claude-code",
    ] {
        let error = home.act(client, Action::Connect).err().unwrap();
        assert!(
            matches!(error, ConnectError::NotInstalled { .. }),
            "{client}: {error}"
        );
    }
    let error = home
        .act("netscape", Action::Connect)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("netscape") && error.contains("claude-desktop"),
        "{error}"
    );
}

#[test]
fn of_several_files_the_user_names_one() {
    let home = Home::new(Os::Windows);
    let old = home.write(&format!("AppData/Roaming/Claude/{FILE}"), "{}");
    let new = home.write(&format!("AppData/Local/Claude-Data/claude_1/{FILE}"), "{}");
    let error = home.act("claude-desktop", Action::Connect).err().unwrap();
    assert!(
        matches!(&error, ConnectError::SeveralFiles { files, .. } if files.len() == 2),
        "{error}"
    );
    assert!(matches!(
        home.state("claude-desktop"),
        State::Several { .. }
    ));
    let through = |file: &Path| {
        home.with(|connector| {
            connector.carry_out("claude-desktop", Action::Connect, Some(file), false)
        })
    };
    assert!(matches!(
        through(Path::new("/etc/passwd")),
        Err(ConnectError::NotItsFile { .. })
    ));
    through(&new).unwrap();
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "{}");
    assert_eq!(home.standing("claude-desktop").unwrap().file.unwrap(), new);
    // It is known now which one is meant.
    home.disconnect("claude-desktop");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "{}");
}

#[cfg(unix)]
#[test]
fn links_modes_and_dangling_links_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let home = Home::new(Os::Linux);
    let real = home.write("dotfiles/mcp.json", "{}\n");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    let link = home.path().join(".cursor/mcp.json");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink("../dotfiles/mcp.json", &link).unwrap();
    home.connect("cursor");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains(PROGRAM));
    assert_eq!(
        std::fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    home.disconnect("cursor");
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "{}\n");
    std::fs::remove_file(&real).unwrap();
    home.connect("cursor");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains(PROGRAM));
    let left: Vec<_> = std::fs::read_dir(real.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary file stays: {left:?}");
}

//! Our entry is missed when it is gone, and put back where the user asked for that.

use runbridge_core::clients::connect::{Action, State};
use runbridge_core::clients::guardian::{Finding, Guardian};
use runbridge_core::paths::Os;

use crate::home::{Home, PROGRAM};

const FILE: &str = ".config/Claude/claude_desktop_config.json";
const REWRITTEN: &str = "{\"preferences\": {}}";

fn look(home: &Home, guardian: &mut Guardian) -> Vec<Finding> {
    home.search(|search| guardian.look(search, None))
}

#[test]
fn a_lost_entry_is_told_once_and_left_to_the_user() {
    let home = Home::new(Os::Linux);
    home.write(FILE, "{}");
    let mut guardian = Guardian::default();
    assert!(look(&home, &mut guardian).is_empty());
    home.connect("claude-desktop");
    assert!(look(&home, &mut guardian).is_empty());
    home.write(FILE, REWRITTEN);
    let findings = look(&home, &mut guardian);
    assert_eq!(findings.len(), 1);
    assert_eq!(
        (&findings[0].state, findings[0].restored),
        (&State::Lost, false)
    );
    assert!(
        findings[0].to_string().contains("the entry is gone"),
        "{}",
        findings[0]
    );
    assert!(look(&home, &mut guardian).is_empty(), "it was told already");
    assert_eq!(home.read(FILE), REWRITTEN);
    home.connect("claude-desktop");
    assert!(look(&home, &mut guardian).is_empty());
    home.write(FILE, &home.read(FILE).replace(PROGRAM, "/bin/false"));
    assert_eq!(look(&home, &mut guardian)[0].state, State::Changed);
    // The newer place became the live one.
    std::fs::remove_file(home.path().join(FILE)).unwrap();
    let other = home.write(".config/claude/claude_desktop_config.json", "{}");
    assert_eq!(
        look(&home, &mut guardian)[0].state,
        State::Shadowed { by: other }
    );
}

#[test]
fn a_kept_entry_is_put_back_but_not_for_ever() {
    let home = Home::new(Os::Linux);
    home.write(FILE, "{}");
    home.with(|connector| connector.carry_out("claude-desktop", Action::Connect, None, true))
        .unwrap();
    let mut guardian = Guardian::default();
    let mut restored = 0;
    for _ in 0..20 {
        home.write(FILE, REWRITTEN);
        for finding in look(&home, &mut guardian) {
            restored += usize::from(finding.restored);
            assert!(!finding.restored || finding.to_string().contains("start it again"));
        }
    }
    assert_eq!(restored, 5);
    assert_eq!(
        home.read(FILE),
        REWRITTEN,
        "whoever removes it so often means it"
    );
}

//! Packages: what is installed, and whether more may be.

use runbridge_core::api::{CallState, Change, Packages, PackagesPolicy};
use runbridge_testkit::{Index, Wheel};
use serde_json::{Value, json};

use crate::bench::Before;

fn of(change: &Change) -> Option<Packages> {
    match change {
        Change::Sandbox { sandbox } => Some(sandbox.packages.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn packages_are_listed_with_where_they_came_from_and_taken_away() {
    let index = Index::start();
    index.put(Wheel::new("tiny-table", "0.9").requires("tiny-dep"));
    index.put(Wheel::new("tiny-dep", "1.5"));
    let settings = json!({ "version": 1, "packages": { "index": index.url() } });
    let mut bench = Before::default().settings(settings).open().await;
    let before = bench.state().await.sandbox.packages;
    assert_eq!(before.policy, PackagesPolicy::Ask);
    assert_eq!(before.index.as_deref(), Some("127.0.0.1"));
    assert_eq!(before.installed, []);

    let wanted = ["tiny-table".to_owned()];
    let added = runbridge_core::packages::add(&bench.bridge, &wanted, &|_| {}).await;
    assert_eq!(added.unwrap().len(), 2);
    let installed = bench.state().await.sandbox.packages.installed;
    let seen: Vec<_> = installed
        .iter()
        .map(|one| (&one.name[..], &one.version[..], one.needed, &one.index[..]))
        .collect();
    assert_eq!(
        seen,
        [
            ("tiny-dep", "1.5", true, "127.0.0.1"),
            ("tiny-table", "0.9", false, "127.0.0.1"),
        ]
    );
    assert!(installed.iter().all(|one| one.size_bytes > 100));

    bench.listen_anew();
    bench
        .desk
        .remove_package("tiny-table".to_owned())
        .await
        .unwrap();
    let left = bench
        .hear(|change| of(change).filter(|packages| packages.installed.len() == 1))
        .await;
    assert_eq!(left.installed[0].name, "tiny-dep");
    // Once more is as good.
    bench
        .desk
        .remove_package("tiny-table".to_owned())
        .await
        .unwrap();
    bench.close().await;
}

#[tokio::test]
async fn whether_code_may_install_is_chosen_told_and_kept() {
    let mut bench = Before::default().open().await;
    for (policy, word) in [
        (PackagesPolicy::Allow, "allow"),
        (PackagesPolicy::Off, "off"),
        (PackagesPolicy::Ask, "ask"),
    ] {
        bench.listen_anew();
        bench.desk.set_packages_policy(policy).await.unwrap();
        bench
            .hear(|change| of(change).filter(|packages| packages.policy == policy))
            .await;
        assert_eq!(bench.settings()["packages"]["policy"], word);
    }
    bench.close().await;
}

#[tokio::test]
async fn what_code_installs_is_listed_at_once_and_kept_with_its_run() {
    let index = Index::start();
    index.put(Wheel::new("tiny-table", "0.9").requires("tiny-dep"));
    index.put(Wheel::new("tiny-dep", "1.5"));
    let settings = json!({
        "version": 1,
        "packages": { "index": index.url(), "policy": "allow" },
    });
    let mut bench = Before::default().settings(settings).open().await;
    bench.listen_anew();
    let script = r#"ask packages.install {"packages": ["tiny-table"]}
ask packages.install {"packages": ["absent-one"]}"#;
    let id = bench.desk.run_code(script.to_owned()).unwrap();
    let told = bench
        .hear(|change| of(change).filter(|packages| !packages.installed.is_empty()))
        .await;
    let names: Vec<_> = told.installed.iter().map(|one| &one.name[..]).collect();
    assert_eq!(names, ["tiny-dep", "tiny-table"]);

    let run = bench.ended(&id).await;
    let [installed, refused] = &run.calls[..] else {
        panic!("{:?}", run.calls)
    };
    assert_eq!(
        (&installed.server[..], &installed.tool[..], &installed.state),
        ("packages", "install", &CallState::Done)
    );
    let kept: Value = serde_json::from_str(&installed.arguments).unwrap();
    let wanted = json!({
        "packages": ["tiny-table"],
        "installed": ["tiny-dep 1.5", "tiny-table 0.9"],
        "index": "127.0.0.1",
    });
    assert_eq!(kept, wanted);
    let CallState::Failed { error } = &refused.state else {
        panic!("{refused:?}")
    };
    assert!(error.message.contains("absent-one"), "{error:?}");
    bench.close().await;
}

//! Memory items and saved tools.

use runbridge_core::api::{Change, ErrorCode, ImportMode, MemoryOrder};
use serde_json::json;

use crate::bench::{Bench, write};

async fn keys(bench: &Bench, text: &str, order: MemoryOrder) -> Vec<String> {
    let page = bench
        .desk
        .read_memory(text.to_owned(), order, 0, 100)
        .await
        .unwrap();
    page.items.into_iter().map(|item| item.key).collect()
}

#[tokio::test]
async fn what_the_model_saves_is_told_with_who_saved_it() {
    let mut bench = Bench::open().await;
    bench.state().await;
    bench.listen_anew();
    let save = json!({ "key": "plan", "value": { "step": 1 }, "metadata": { "tag": "x" } });
    // Not waited for: what is told may come before the run's end, or after.
    bench
        .desk
        .run_code(format!("ask memory.save {save}"))
        .unwrap();
    let (info, totals) = bench
        .hear(|change| match change {
            Change::MemorySaved { info, totals } => Some((info.clone(), *totals)),
            _ => None,
        })
        .await;
    assert_eq!((info.key.as_str(), info.version), ("plan", 1));
    assert_eq!(
        (info.client.as_deref(), info.session),
        (Some("runbridge"), None)
    );
    assert_eq!(info.preview, r#"{"step":1}"#);
    assert_eq!(info.used_at, None);
    assert_eq!((totals.items, totals.size_bytes), (1, 10));
    bench.run(r#"ask memory.load {"key":"plan"}"#).await;
    let item = bench
        .desk
        .read_memory_item("plan".to_owned())
        .await
        .unwrap();
    assert!(item.info.used_at.is_some());
    assert_eq!(item.value, r#"{"step":1}"#);
    assert_eq!(item.metadata.as_deref(), Some(r#"{"tag":"x"}"#));
    bench.close().await;
}

#[tokio::test]
async fn items_are_searched_and_sorted() {
    let bench = Bench::open().await;
    for (key, value) in [
        ("beta", "\"needle in here\""),
        ("alpha", "[1,2,3]"),
        ("gamma", "1"),
    ] {
        let save = bench
            .desk
            .save_memory_item(key.to_owned(), value.to_owned(), None);
        save.await.unwrap();
    }
    assert_eq!(
        keys(&bench, "", MemoryOrder::Key).await,
        ["alpha", "beta", "gamma"]
    );
    assert_eq!(
        keys(&bench, "", MemoryOrder::Size).await,
        ["beta", "alpha", "gamma"]
    );
    assert_eq!(keys(&bench, "NEEDLE", MemoryOrder::Key).await, ["beta"]);
    assert_eq!(keys(&bench, "gam", MemoryOrder::Key).await, ["gamma"]);
    let page = bench
        .desk
        .read_memory(String::new(), MemoryOrder::Key, 1, 1)
        .await
        .unwrap();
    assert_eq!((page.total, page.items[0].key.as_str()), (3, "beta"));
    // One that cannot be read is listed as that.
    write(&bench.home.path().join("MCPs/memory/bro%20ken.json"), "{");
    let page = bench
        .desk
        .read_memory("ken".to_owned(), MemoryOrder::Key, 0, 9)
        .await
        .unwrap();
    assert_eq!(page.items[0].key, "bro ken");
    assert!(page.items[0].damaged.is_some());
    bench.close().await;
}

#[tokio::test]
async fn a_value_is_edited_only_from_its_last_version() {
    let mut bench = Bench::open().await;
    let save = |value: &str, version| {
        bench
            .desk
            .save_memory_item("k".to_owned(), value.to_owned(), version)
    };
    assert_eq!(save("1", None).await.unwrap().version, 1);
    assert_eq!(save("2", Some(1)).await.unwrap().version, 2);
    for version in [None, Some(1), Some(3)] {
        assert_eq!(
            save("3", version).await.unwrap_err().code,
            ErrorCode::MemoryConflict
        );
    }
    assert_eq!(
        save("{", Some(2)).await.unwrap_err().code,
        ErrorCode::MemoryInvalid
    );
    let seen = bench.run(r#"ask memory.load {"key":"k"}"#).await;
    assert!(seen.stdout.contains("\"value\":2"), "{}", seen.stdout);
    bench.close().await;
}

#[tokio::test]
async fn what_was_forgotten_comes_back_once() {
    let mut bench = Bench::open().await;
    bench
        .desk
        .save_memory_item("k".to_owned(), "7".to_owned(), None)
        .await
        .unwrap();
    let before = bench.desk.read_memory_item("k".to_owned()).await.unwrap();
    bench.listen_anew();
    let undo = bench
        .desk
        .forget_memory_item("k".to_owned())
        .await
        .unwrap()
        .undo_id;
    let totals = bench
        .hear(|change| match change {
            Change::MemoryForgotten { key, totals } if key == "k" => Some(*totals),
            _ => None,
        })
        .await;
    assert_eq!(totals.items, 0);
    let gone = bench.desk.read_memory_item("k".to_owned()).await;
    assert_eq!(gone.unwrap_err().code, ErrorCode::MemoryNotFound);
    bench.desk.undo_forget(undo.clone()).await.unwrap();
    let after = bench.desk.read_memory_item("k".to_owned()).await.unwrap();
    assert_eq!(
        (after.value, after.info.created_at),
        (before.value, before.info.created_at)
    );
    assert!(after.info.version > before.info.version);
    assert!(bench.desk.undo_forget(undo).await.is_err());

    // In use again meanwhile: nothing is lost.
    let undo = bench
        .desk
        .forget_memory_item("k".to_owned())
        .await
        .unwrap()
        .undo_id;
    bench
        .desk
        .save_memory_item("k".to_owned(), "8".to_owned(), None)
        .await
        .unwrap();
    let error = bench.desk.undo_forget(undo.clone()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::MemoryConflict);
    bench.desk.forget_memory_item("k".to_owned()).await.unwrap();
    bench.desk.undo_forget(undo).await.unwrap();
    assert_eq!(
        bench
            .desk
            .read_memory_item("k".to_owned())
            .await
            .unwrap()
            .value,
        "7"
    );
    bench.close().await;
}

#[tokio::test]
async fn a_memory_is_exported_and_imported_into_another() {
    let bench = Bench::open().await;
    for (key, value) in [("a", "1"), ("b", "2")] {
        bench
            .desk
            .save_memory_item(key.to_owned(), value.to_owned(), None)
            .await
            .unwrap();
    }
    let file = bench.home.path().join("memory.json");
    bench.desk.export_memory(&file).await.unwrap();
    let other = Bench::open().await;
    other
        .desk
        .save_memory_item("b".to_owned(), "3".to_owned(), None)
        .await
        .unwrap();
    let kept = other
        .desk
        .import_memory(&file, ImportMode::Keep)
        .await
        .unwrap();
    assert_eq!((kept.added, kept.replaced, kept.kept), (1, 0, 1));
    assert_eq!(
        other
            .desk
            .read_memory_item("b".to_owned())
            .await
            .unwrap()
            .value,
        "3"
    );
    let replaced = other
        .desk
        .import_memory(&file, ImportMode::Replace)
        .await
        .unwrap();
    assert_eq!(
        (replaced.added, replaced.replaced, replaced.kept),
        (0, 2, 0)
    );
    assert_eq!(
        other
            .desk
            .read_memory_item("b".to_owned())
            .await
            .unwrap()
            .value,
        "2"
    );
    assert_eq!(other.state().await.memory.items, 2);
    write(&file, "[]");
    let error = other
        .desk
        .import_memory(&file, ImportMode::Keep)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::MemoryInvalid);
    other.close().await;
    bench.close().await;
}

#[tokio::test]
async fn saved_tools_are_listed_forgotten_and_brought_back() {
    let mut bench = Bench::open().await;
    let tool = json!({ "name": "twice", "source": "def twice(x): return 2 * x", "description": "Doubles.\nReally." });
    bench.listen_anew();
    bench
        .desk
        .run_code(format!("ask saved_tools.save {tool}"))
        .unwrap();
    bench
        .hear(|change| {
            matches!(change, Change::SavedTools { totals } if totals.saved_tools == 1).then_some(())
        })
        .await;
    let tools = bench.desk.read_saved_tools().await.unwrap();
    assert_eq!(
        (tools[0].name.as_str(), tools[0].summary.as_str()),
        ("twice", "Doubles.")
    );
    assert_eq!(tools[0].client.as_deref(), Some("runbridge"));
    let undo = bench
        .desk
        .forget_saved_tool("twice".to_owned())
        .await
        .unwrap()
        .undo_id;
    assert!(bench.desk.read_saved_tools().await.unwrap().is_empty());
    let missing = bench.desk.forget_saved_tool("twice".to_owned()).await;
    assert_eq!(missing.unwrap_err().code, ErrorCode::MemoryNotFound);
    bench.desk.undo_forget(undo).await.unwrap();
    assert_eq!(bench.desk.read_saved_tools().await.unwrap(), tools);
    bench.close().await;
}

//! Runs of Python: output, values, errors, variables, calls.

use std::time::Duration;

use runbridge_sandbox::RunEnd;

use crate::session::Session;

#[tokio::test]
async fn python_prints_and_gives_its_last_value() {
    let mut session = Session::start().await;
    assert!(session.interpreter.hello().python.starts_with("3.13"));
    let ran = session.run("print('zażółć', 1)\n6 * 7").await;
    assert_eq!((ran.stdout.as_str(), ran.value()), ("zażółć 1\n", "42"));
    assert_eq!(session.end().await.stderr_tail, "");
}

#[tokio::test]
async fn variables_live_from_run_to_run() {
    let mut session = Session::start().await;
    session
        .run("import json\nkept = [1]\ndef more(): kept.append(len(kept) + 1)")
        .await;
    let ran = session.run("more()\njson.dumps(kept)").await;
    assert_eq!(ran.value(), "'[1, 2]'");
}

#[tokio::test]
async fn an_exception_comes_with_the_source_line() {
    let mut session = Session::start().await;
    let ran = session.run("x = 1\nraise ValueError('no')").await;
    assert_eq!(ran.raised(), "ValueError: no");
    let traceback = &ran.outcome.error.as_ref().unwrap().traceback;
    assert!(
        traceback.contains("<run 1>") && traceback.contains("raise ValueError('no')"),
        "{traceback}"
    );
    assert_eq!(session.run("x").await.value(), "1");
}

#[tokio::test]
async fn twenty_calls_at_once_take_the_time_of_one() {
    let mut session = Session::start().await;
    session.run("import asyncio").await;
    let ran = session
        .run("len(await asyncio.gather(*[mcp.runtime.call_tool('srv', 'slow', {'ms': 200}) for _ in range(20)]))")
        .await;
    assert_eq!(ran.value(), "20");
    assert!(ran.took < Duration::from_millis(1500), "{:?}", ran.took);
}

#[tokio::test]
async fn a_failing_call_raises_where_it_was_made() {
    let mut session = Session::start().await;
    let ran = session
        .run(
            "try:\n    await mcp.runtime.call_tool('srv', 'bad')\nexcept RuntimeError as error:\n    print(type(error).__name__, error)",
        )
        .await;
    assert_eq!(ran.stdout, "MCPError it went wrong\n", "{ran:?}");
}

#[tokio::test]
async fn a_task_lives_on_between_runs_and_prints_under_its_own_run() {
    let mut session = Session::start().await;
    session
        .run("import asyncio\nasync def late():\n    await asyncio.sleep(0.2)\n    print('late')\ntask = asyncio.create_task(late())")
        .await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while session.late().is_empty() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "nothing was printed"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(session.late(), [(1001, "late\n".to_owned())]);
    assert_eq!(session.run("task.done()").await.value(), "True");
}

#[tokio::test]
async fn what_is_missing_says_what_to_do() {
    let mut session = Session::start().await;
    for (code, wanted) in [
        (
            "import threading; threading.Thread(target=print).start()",
            "asyncio.gather",
        ),
        (
            "import asyncio; await asyncio.to_thread(print)",
            "asyncio.gather",
        ),
        (
            "import subprocess; subprocess.run(['ls'])",
            "does not support processes",
        ),
    ] {
        let raised = session.run(code).await.raised();
        assert!(raised.contains(wanted), "{code}: {raised}");
    }
    let ran = session.run("import pandas").await;
    assert!(ran.notes().contains("switch to Container"), "{ran:?}");
}

#[tokio::test]
async fn a_process_that_ends_itself_leaves_the_variables_as_they_were() {
    let mut session = Session::start().await;
    session
        .run("kept = {'a': 1}\nopen('/workspace/f', 'w').write('before')")
        .await;
    let ran = session
        .run("kept = None\nopen('/workspace/f', 'w').write('after')\nimport os; os._exit(7)")
        .await;
    assert_eq!(ran.outcome.end, RunEnd::Finished, "{ran:?}");
    assert_eq!(ran.outcome.exit_code, Some(7), "{ran:?}");
    assert!(ran.notes().contains("as they were before it"), "{ran:?}");
    assert_eq!(
        session
            .run("kept, open('/workspace/f').read()")
            .await
            .value(),
        "({'a': 1}, 'before')"
    );
}

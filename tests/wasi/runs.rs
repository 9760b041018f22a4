//! Runs of Python: output, values, errors, variables, calls.

use std::time::Duration;

use runbridge_sandbox::RunEnd;

use crate::session::Session;

#[tokio::test]
async fn python_prints_and_gives_its_last_value() {
    let mut session = Session::start().await;
    assert!(session.interpreter.hello().python.starts_with("3.13"));
    let ran = session
        .run("import sys\nprint('aside', file=sys.stderr)")
        .await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "aside\n"));
    let ran = session.run("print('zażółć', 1)\n6 * 7").await;
    assert_eq!((ran.stdout.as_str(), ran.value()), ("zażółć 1\n", "42"));
    assert_eq!(session.end().await.stderr_tail, "");
}

/// What a guest does to be quick at its first run is nothing that the run could see.
#[tokio::test]
async fn a_first_run_finds_a_guest_that_has_done_nothing() {
    let mut session = Session::start().await;
    // No event tells that a guest is ready beyond its greeting.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let ran = session
        .run(
            "import asyncio, linecache, sys\n\
             files = [name for name in linecache.cache if name.startswith('<')]\n\
             names = [name for name in globals() if name in ('_', 'tree', 'body')]\n\
             (files, names, len(asyncio.all_tasks(asyncio.get_event_loop())), sys.exc_info())",
        )
        .await;
    assert_eq!(ran.value(), "(['<run 1>'], [], 0, (None, None, None))");
    assert_eq!((ran.stdout.as_str(), ran.notes()), ("", String::new()));
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

#[tokio::test]
async fn the_bundled_packages_work_without_network() {
    let mut session = Session::start().await;
    for (code, wanted) in [
        (
            "import openpyxl\nbook = openpyxl.Workbook()\nbook.active.append([1, 'two'])\nbook.save('/tmp/a.xlsx')\n\
             [[cell.value for cell in row] for row in openpyxl.load_workbook('/tmp/a.xlsx').active]",
            "[[1, 'two']]",
        ),
        (
            "import tabulate; tabulate.tabulate([[1, 2]], tablefmt='plain')",
            "'1  2'",
        ),
        (
            "import jinja2; jinja2.Template('{{ a }} < b').render(a=1)",
            "'1 < b'",
        ),
        (
            "import bs4; bs4.BeautifulSoup('<p>a<b>c</b>', 'html.parser').b.text",
            "'c'",
        ),
        (
            "from dateutil import parser; parser.parse('3 May 2024').isoformat()",
            "'2024-05-03T00:00:00'",
        ),
        ("import yaml; yaml.safe_load('a: [1, 2]')", "{'a': [1, 2]}"),
        (
            "import zoneinfo, datetime\n\
             datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Warsaw')).utcoffset().seconds",
            "7200",
        ),
    ] {
        assert_eq!(session.run(code).await.value(), wanted, "{code}");
    }
}

#[tokio::test]
async fn the_standard_library_is_whole() {
    let mut session = Session::start().await;
    for (code, wanted) in [
        (
            "import sqlite3\ndb = sqlite3.connect('/workspace/a.db')\ndb.execute('create table t (x)')\n\
             db.execute('insert into t values (1), (2)')\ndb.commit()\n\
             sqlite3.connect('/workspace/a.db').execute('select sum(x) from t').fetchone()",
            "(3,)",
        ),
        (
            "import zlib, bz2, lzma, gzip\n\
             [m.decompress(m.compress(b'x' * 1000)) == b'x' * 1000 for m in (zlib, bz2, lzma, gzip)]",
            "[True, True, True, True]",
        ),
        (
            "import decimal, hashlib\ndecimal.Decimal(1) / 7, hashlib.sha256(b'').hexdigest()[:8], hashlib.md5(b'').hexdigest()[:4]",
            "(Decimal('0.1428571428571428571428571429'), 'e3b0c442', 'd41d')",
        ),
        (
            "import xml.etree.ElementTree as E; E.fromstring('<a><b c=\"1\"/></a>')[0].attrib",
            "{'c': '1'}",
        ),
        (
            "import tempfile, zipfile, shutil, os, pathlib\nd = tempfile.mkdtemp()\n\
             pathlib.Path(d, 'x', 'y').mkdir(parents=True)\npathlib.Path(d, 'x', 'y', 'z').write_text('t')\n\
             shutil.make_archive('/tmp/made', 'zip', d)\nnames = zipfile.ZipFile('/tmp/made.zip').namelist()\n\
             shutil.rmtree(d)\n'x/y/z' in names, os.path.exists(d)",
            "(True, False)",
        ),
        (
            "import importlib.resources, time\nt = time.monotonic(); time.sleep(0.05); 0.04 < time.monotonic() - t < 5",
            "True",
        ),
    ] {
        assert_eq!(session.run(code).await.value(), wanted, "{code}");
    }
}

//! CPython's own tests, inside the embedded sandbox: `wasi_cpython ARCHIVE OUT.JSON [MODULE...]`,
//! called by `cargo xtask guest --test-suite`.
//!
//! Each module of tests runs in a session of its own, under the limits that users have. What fails
//! must have its reason in `cpython/reasons.json`; the results are written down either way. Where
//! modules are named, theirs alone are written anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    dead_code,
    reason = "a run that cannot prepare has failed, and progress goes to stderr"
)]

mod session;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine as _;
use runbridge_sandbox::RunEnd;
use serde::Deserialize;
use serde_json::{Value, json};

use session::{Ran, Session};

/// Modules of CPython's tests whose subject should work in the sandbox.
const MODULES: &str = "
    test_abc test_abstract_numbers test_argparse test_array test_ast test_asyncgen
    test_asyncio.test_context test_asyncio.test_eager_task_factory test_asyncio.test_futures
    test_asyncio.test_futures2 test_asyncio.test_locks test_asyncio.test_pep492
    test_asyncio.test_protocols test_asyncio.test_queues test_asyncio.test_runners
    test_asyncio.test_staggered test_asyncio.test_taskgroups test_asyncio.test_tasks
    test_asyncio.test_timeouts test_asyncio.test_transports test_asyncio.test_waitfor
    test_augassign test_base64 test_baseexception test_binascii test_binop test_bisect test_bool
    test_bufio test_builtin test_bytes test_bz2 test_calendar test_call test_class test_cmath test_cmd
    test_codeccallbacks test_codecs test_codeop test_collections test_colorsys test_compare test_compile
    test_complex test_configparser test_contains test_context test_contextlib test_contextlib_async
    test_copy test_copyreg test_coroutines test_csv test_dataclasses test_datetime test_dbm_dumb
    test_dbm_sqlite3 test_decimal test_decorators test_defaultdict test_deque test_descr test_dict
    test_dictcomps test_dictviews test_difflib test_dis test_dynamic test_email test_enum test_enumerate
    test_errno test_except_star test_exception_group test_exception_hierarchy test_exception_variations
    test_exceptions test_extcall test_file test_filecmp test_fileinput test_fileio test_float test_fnmatch
    test_format test_fractions test_frame test_fstring test_funcattrs test_functools test_gc
    test_generator_stop test_generators test_genericalias test_genericclass test_genericpath test_genexps
    test_getopt test_gettext test_glob test_global test_grammar test_graphlib test_gzip test_hash
    test_hashlib test_heapq test_hmac test_html test_htmlparser test_http_cookies test_index test_inspect
    test_int test_int_literal test_io test_ipaddress test_isinstance test_iter test_iterlen test_itertools
    test_json test_keyword test_keywordonlyarg test_linecache test_list test_listcomps test_locale
    test_logging test_long test_longexp test_lzma test_marshal test_math test_math_property test_memoryio
    test_memoryview test_metaclass test_mimetypes test_minidom test_named_expressions test_netrc
    test_numeric_tower test_opcodes test_operator test_optparse test_ordered_dict test_pathlib test_patma
    test_pickle test_picklebuffer test_pickletools test_pkgutil test_plistlib test_positional_only_arg
    test_posixpath test_pow test_pprint test_print test_property test_pulldom test_pyclbr test_pyexpat
    test_queue test_quopri test_raise test_random test_range test_re test_reprlib test_richcmp
    test_robotparser test_sax test_sched test_scope test_secrets test_set test_setcomps test_shelve
    test_shlex test_shutil test_slice test_sort test_sqlite3 test_stat test_statistics test_str
    test_strftime test_string test_string_literals test_stringprep test_strptime test_strtod test_struct
    test_structseq test_subclassinit test_super test_symtable test_syntax test_tarfile test_tempfile
    test_textwrap test_time test_timeit test_tokenize test_tomllib test_traceback test_tuple
    test_type_annotations test_type_params test_typechecks test_types test_typing test_ucn test_unary
    test_unicode_identifiers test_unicodedata test_univnewlines test_unpack test_unpack_ex test_unparse
    test_urllib test_urllib_response test_urlparse test_userdict test_userlist test_userstring test_uuid
    test_wave test_weakref test_weakset test_with test_xml_dom_minicompat test_xml_dom_xmlbuilder
    test_xml_etree test_xml_etree_c test_yield_from test_zipapp test_zipfile test_zipimport test_zlib
    test_zoneinfo
";

const DRIVER: &str = include_str!("cpython/driver.py");
const REASONS: &str = include_str!("cpython/reasons.json");

/// What one piece of a module may take; the test that it ends in is counted as failed.
const PIECE_MS_MAX: u64 = 600_000;
/// How often a module is gone on with after a test that ended the run.
const PIECES_MAX: usize = 25;
const SESSIONS_AT_ONCE: usize = 2;

/// Why some tests cannot pass here. The first that fits a failure explains it.
#[derive(Deserialize)]
struct Reason {
    why: String,
    /// Test ids; a `*` at the end stands for anything. None means all.
    #[serde(default)]
    tests: Vec<String>,
    /// A part of the error. None means any.
    #[serde(default)]
    error: Option<String>,
    /// It explained something.
    #[serde(skip)]
    used: bool,
}

impl Reason {
    fn fits(&self, test: &str, error: &str) -> bool {
        let named = self.tests.is_empty()
            || self
                .tests
                .iter()
                .any(|named| match named.strip_suffix('*') {
                    Some(start) => test.starts_with(start),
                    None => test == named,
                });
        let told = self.error.as_ref();
        named && told.is_none_or(|told| error.contains(told.as_str()))
    }
}

#[derive(Clone, Debug, PartialEq)]
enum End {
    Passed,
    Skipped(String),
    Failed(String),
}

type Ends = BTreeMap<String, End>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(archive), Some(out)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: ARCHIVE OUT.JSON [MODULE...]");
        return ExitCode::FAILURE;
    };
    let archive = std::fs::read(archive).expect("cannot read the archive");
    let archive = Arc::new(base64::engine::general_purpose::STANDARD.encode(archive));
    let mut modules: Vec<String> = arguments.collect();
    let all = modules.is_empty();
    if all {
        modules = MODULES.split_whitespace().map(str::to_owned).collect();
    }
    let modules = Arc::new(modules);
    let next = Arc::new(AtomicUsize::new(0));
    // What is named is written into what an earlier run left.
    let modules_before = if all { BTreeMap::new() } else { before(&out) };
    let results = Arc::new(Mutex::new(Results {
        out,
        modules: modules_before,
        reasons: serde_json::from_str(REASONS).expect("reasons.json"),
        unexplained: Vec::new(),
    }));
    let working: Vec<_> = (0..SESSIONS_AT_ONCE)
        .map(|_| {
            let (archive, modules) = (archive.clone(), modules.clone());
            let (next, results) = (next.clone(), results.clone());
            tokio::spawn(async move {
                while let Some(name) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let ends = module(&archive, name).await;
                    eprintln!("{name}: {} in {:.1?}", counts(&ends), begun.elapsed());
                    results.lock().unwrap().add(name, &ends);
                }
            })
        })
        .collect();
    for work in working {
        work.await.expect("a module could not be run");
    }
    let results = results.lock().unwrap();
    if all {
        for reason in results.reasons.iter().filter(|reason| !reason.used) {
            eprintln!("a reason that nothing needs: {}", reason.why);
        }
    }
    if results.unexplained.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("not explained:\n{}", results.unexplained.join("\n"));
    ExitCode::FAILURE
}

/// Run one module of tests to its end, however often it must be begun.
async fn module(archive: &str, name: &str) -> Ends {
    let mut session = Session::start().await;
    let prepare =
        format!("{DRIVER}\nimport base64\nunpack(base64.b64decode({archive:?}), {name:?})\n");
    let ran = session.run_for(&prepare, 120_000).await;
    let mut ends = Ends::new();
    if ran.outcome.error.is_some() || ran.outcome.end != RunEnd::Finished {
        ends.insert(format!("test.{name}"), End::Failed(why_ended(&ran)));
        return ends;
    }
    for _ in 0..PIECES_MAX {
        let done: Vec<&String> = ends.keys().collect();
        let code = format!("run({name:?}, {})", json!(done));
        let ran = session.run_for(&code, PIECE_MS_MAX).await;
        let (finished, last) = take_in(&ran.stdout, &mut ends);
        if finished {
            session.end().await;
            return ends;
        }
        let test = last.unwrap_or_else(|| format!("test.{name}"));
        // One that was ended before cannot be passed over: it would end the next piece too.
        let again = ends
            .insert(test, End::Failed(why_ended(&ran)))
            .is_some_and(|end| matches!(end, End::Failed(_)));
        if again {
            break;
        }
        if !session.interpreter.is_alive() {
            session.end().await;
            session = Session::start().await;
            session.run_for(&prepare, 120_000).await;
        }
    }
    session.end().await;
    ends
}

/// Keep what the driver told; whether it came to its end, and the test that it was in.
fn take_in(stdout: &str, ends: &mut Ends) -> (bool, Option<String>) {
    let mut last = None;
    for told in stdout.split("\n\u{1e}").skip(1) {
        let line = told.lines().next().unwrap_or_default();
        let Ok(told) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        let end = match text("end").as_str() {
            "finished" => return (true, None),
            "started" => {
                last = Some(text("test"));
                continue;
            }
            "passed" => End::Passed,
            "skipped" => End::Skipped(text("why")),
            _ => End::Failed(text("why")),
        };
        let test = text("test");
        if last.as_ref() == Some(&test) {
            last = None;
        }
        // Of a test with parts, the worst of them.
        let before = ends.get(&test);
        if !matches!(
            (before, &end),
            (Some(End::Failed(_)), _) | (Some(_), End::Passed)
        ) {
            ends.insert(test, end);
        }
    }
    (false, last)
}

fn why_ended(ran: &Ran) -> String {
    let error = ran.outcome.error.as_ref();
    let error = error.map(|error| format!("{}: {}", error.r#type, error.message));
    let mut why = format!("the run ended: {:?}", ran.outcome.end);
    for part in error.into_iter().chain(ran.outcome.notes.iter().cloned()) {
        why += "; ";
        why += &part;
    }
    why.chars().take(300).collect()
}

fn counts(ends: &Ends) -> String {
    let count = |of: fn(&End) -> bool| ends.values().filter(|end| of(end)).count();
    format!(
        "{} passed, {} skipped, {} failed",
        count(|end| *end == End::Passed),
        count(|end| matches!(end, End::Skipped(_))),
        count(|end| matches!(end, End::Failed(_))),
    )
}

/// What came of the modules so far, written down after each of them.
struct Results {
    out: String,
    modules: BTreeMap<String, Value>,
    reasons: Vec<Reason>,
    /// Failures that no reason fits.
    unexplained: Vec<String>,
}

impl Results {
    fn add(&mut self, name: &str, ends: &Ends) {
        let mut passed = 0;
        let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
        let mut failed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (test, end) in ends {
            match end {
                End::Passed => passed += 1,
                End::Skipped(why) => *skipped.entry(why).or_default() += 1,
                End::Failed(error) => {
                    let mut reasons = self.reasons.iter_mut();
                    let fits = reasons.find(|reason| reason.fits(test, error));
                    let why = if let Some(reason) = fits {
                        reason.used = true;
                        reason.why.clone()
                    } else {
                        self.unexplained.push(format!(
                            "{test}
    {error}"
                        ));
                        "not explained".to_owned()
                    };
                    failed.entry(why).or_default().push(test);
                }
            }
        }
        let mut facts = json!({ "passed": passed });
        if !skipped.is_empty() {
            facts["skipped"] = json!(skipped);
        }
        if !failed.is_empty() {
            facts["failed"] = json!(failed);
        }
        self.modules.insert(name.to_owned(), facts);
        self.write();
    }

    fn write(&self) {
        let count = |count: fn(&Value) -> u64| self.modules.values().map(count).sum::<u64>();
        let passed = count(|facts| facts["passed"].as_u64().unwrap_or_default());
        let skipped = count(|facts| {
            let reasons = facts["skipped"].as_object().into_iter().flatten();
            reasons.filter_map(|(_, count)| count.as_u64()).sum()
        });
        let failed = count(|facts| {
            let reasons = facts["failed"].as_object().into_iter().flatten();
            reasons
                .filter_map(|(_, tests)| Some(tests.as_array()?.len() as u64))
                .sum()
        });
        let whole = json!({
            "total": { "passed": passed, "skipped": skipped, "failed": failed },
            "modules": self.modules,
        });
        let text = serde_json::to_string_pretty(&whole).unwrap() + "\n";
        std::fs::write(&self.out, text).expect("cannot write the results");
    }
}

/// What an earlier run wrote of each module.
fn before(out: &str) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(out).unwrap_or_default();
    let mut written: Value = serde_json::from_str(&text).unwrap_or_default();
    serde_json::from_value(written["modules"].take()).unwrap_or_default()
}

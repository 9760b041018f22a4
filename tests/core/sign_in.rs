//! Signing in to remote servers: the way through the browser, what lasts, and what can go wrong.

mod provider;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use runbridge_core::catalog::Catalog;
use runbridge_core::clients::entry::Entry;
use runbridge_core::paths::{Environment, Os, Paths};
use runbridge_core::secrets::{Secret, Secrets};
use runbridge_core::sign_in::{ClientSettings, SignInError, SignIns, SignedOut, SigningIn};
use runbridge_core::upstream::{UpstreamError, UpstreamLimits, UpstreamState};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::provider::{Provider, Rules};
use crate::http::{remote, without_token};
use crate::upstream::{Bench, PATIENCE, text};

fn entry(provider: &Provider) -> Entry {
    without_token(remote(&provider.url()))
}

/// A bench with one server that wants a sign-in.
async fn bench(provider: &Provider) -> Bench {
    let bench = Bench::new();
    bench.catalog.set_entries(vec![entry(provider)]).await;
    bench
}

/// A second process of the same user: nothing is shared but what is on disk.
async fn process(home: &std::path::Path, provider: &Provider) -> Bench {
    let environment = Environment::new(Os::Linux, [("HOME", home.to_str().unwrap())]);
    let paths = Paths::under(home);
    let secrets = Secrets::open(&paths, &environment);
    let sign_ins = SignIns::new(secrets, BTreeMap::new().into(), Some(paths.secrets()));
    let bench = Bench::with_sign_ins(UpstreamLimits::default(), &[], sign_ins);
    bench.catalog.set_entries(vec![entry(provider)]).await;
    bench
}

fn begin(catalog: &Catalog) -> Result<Arc<SigningIn>, SignInError> {
    catalog.sign_in("fake", ClientSettings::default())
}

/// What a person in front of a browser does: open the page, and be sent on. Gives what it shows.
async fn browse(url: &str) -> String {
    let page = reqwest::get(url).await.unwrap();
    let mut page = page;
    let mut text = Vec::new();
    while let Some(piece) = page.chunk().await.unwrap() {
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).unwrap()
}

pub(crate) async fn sign_in(bench: &Bench) -> Result<String, SignInError> {
    sign_in_as(bench, ClientSettings::default()).await
}

async fn sign_in_as(bench: &Bench, settings: ClientSettings) -> Result<String, SignInError> {
    let signing_in = bench.catalog.sign_in("fake", settings)?;
    let whole = async {
        let url = signing_in.url().await?;
        let shown = browse(&url).await;
        signing_in.finished().await.map(|()| shown)
    };
    timeout(PATIENCE, whole).await.expect("a sign-in ends")
}

async fn token(bench: &Bench) -> String {
    bench.text("echo", json!({})).await
}

fn words(error: &impl ToString, provider: &Provider) -> String {
    error
        .to_string()
        .replace(&provider.address.to_string(), "PROVIDER")
}

#[tokio::test]
async fn a_person_signs_in_once_and_calls_work_from_then_on() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_auth_required");
    insta::assert_snapshot!(words(&error, &provider), @"server `fake` needs you to sign in: http://PROVIDER/mcp answered 401 Unauthorized; sign in in Runbridge: choose Sign in beside the server in its window, or run `runbridge login fake`; if it gave you a token, put that into its `headers`, as `Authorization`");

    let shown = sign_in(&bench).await.unwrap();
    assert!(shown.contains("You are signed in."), "{shown}");
    assert!(token(&bench).await.starts_with("access-token"));
    assert!(matches!(bench.status().state, UpstreamState::Ready));
    assert!(bench.catalog.is_signed_in("fake").await.unwrap());
    let asked = provider.ledger().asked();
    assert_eq!(asked["resource"], provider.url());
    assert_eq!(asked["scope"], "read write");
    assert!(asked["redirect_uri"].starts_with("http://127.0.0.1:"));
    assert_eq!(provider.ledger().count("/register"), 1);

    sign_in(&bench).await.unwrap();
    assert_eq!(provider.ledger().count("/register"), 1, "it is known there");
}

#[tokio::test]
async fn a_token_that_ended_is_renewed_once_for_all_who_call() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    sign_in(&bench).await.unwrap();
    let first = token(&bench).await;
    provider.expire();
    let calls = (0..20).map(|_| bench.call("echo", json!({})));
    let answers = join_all(calls).await;
    let second = text(answers[0].as_ref().unwrap());
    assert_ne!(first, second);
    for answer in answers {
        assert_eq!(text(&answer.unwrap()), second);
    }
    assert_eq!(provider.ledger().grants("refresh_token"), 1);
}

#[tokio::test]
async fn two_processes_never_use_the_same_token_for_renewal_twice() {
    let home = tempfile::tempdir().unwrap();
    let provider = Provider::new(Rules::default()).await;
    let (one, other) = (
        process(home.path(), &provider).await,
        process(home.path(), &provider).await,
    );
    assert_eq!(
        other.error("echo", json!({})).await.code(),
        "server_auth_required"
    );
    sign_in(&one).await.unwrap();
    let first = token(&one).await;
    // It had failed here before, and hears of the sign-in by itself.
    let noticed = async {
        while other.call("echo", json!({})).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, noticed).await.unwrap();
    for round in 1..=3 {
        provider.expire();
        let (a, b) = tokio::join!(token(&one), token(&other));
        assert_eq!(a, b);
        assert_ne!(a, first);
        assert_eq!(provider.ledger().grants("refresh_token"), round);
    }
    assert!(!provider.ledger().stolen);
}

#[tokio::test]
async fn a_revoked_sign_in_asks_for_a_new_one_and_does_not_try_in_vain() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    sign_in(&bench).await.unwrap();
    token(&bench).await;
    provider.revoke_all();
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_auth_required");
    insta::assert_snapshot!(words(&error, &provider), @"server `fake` needs you to sign in: your sign-in has ended (so it is (invalid_grant)); sign in in Runbridge: choose Sign in beside the server in its window, or run `runbridge login fake`");
    for _ in 0..3 {
        let error = bench.error("echo", json!({})).await;
        assert_eq!(error.code(), "server_auth_required");
    }
    assert_eq!(provider.ledger().grants("refresh_token"), 1);
    sign_in(&bench).await.unwrap();
    token(&bench).await;
}

#[tokio::test]
async fn a_renewal_that_fails_on_the_way_is_no_lost_sign_in() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    sign_in(&bench).await.unwrap();
    token(&bench).await;
    provider.rules().token_status = Some(503);
    provider.expire();
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_unreachable");
    insta::assert_snapshot!(words(&error, &provider), @"server `fake` cannot be reached: your sign-in could not be renewed: http://PROVIDER/token answered 503 Service Unavailable");
    provider.rules().token_status = None;
    token(&bench).await;
}

#[tokio::test]
async fn a_clock_that_is_an_hour_off_costs_at_most_a_renewal() {
    for hours in [-1_i64, 1] {
        let home = tempfile::tempdir().unwrap();
        let provider = Provider::new(Rules::default()).await;
        let bench = process(home.path(), &provider).await;
        sign_in(&bench).await.unwrap();
        let first = token(&bench).await;
        drop(bench);
        // As it would be kept, had the clock been wrong when it was.
        let environment = Environment::new(Os::Linux, [("HOME", "/nobody")]);
        let secrets = Secrets::open(&Paths::under(home.path()), &environment);
        let name = secrets.names().await.unwrap().remove(0);
        assert!(name.starts_with("sign-in to 127.0.0.1 "), "{name}");
        let kept = secrets.get(&name).await.unwrap().unwrap();
        let mut kept: Value = serde_json::from_str(kept.expose()).unwrap();
        let renew_at = kept["tokens"]["renew_at"].as_i64().unwrap();
        kept["tokens"]["renew_at"] = (renew_at + hours * 3600).into();
        secrets
            .set(&name, Secret::new(kept.to_string()))
            .await
            .unwrap();
        if hours > 0 {
            provider.expire();
        }
        let bench = process(home.path(), &provider).await;
        assert_ne!(token(&bench).await, first);
        token(&bench).await;
        assert_eq!(provider.ledger().grants("refresh_token"), 1, "{hours}");
    }
}

#[tokio::test]
async fn what_a_stranger_s_documents_name_is_not_simply_used() {
    let mut told = Vec::new();
    let cases: [(&str, Rules); 13] = [
        (
            "the machine's own secrets",
            resource(json!({"authorization_servers": ["http://169.254.169.254"]})),
        ),
        (
            "the user's network",
            resource(json!({"authorization_servers": ["https://10.0.0.1/auth"]})),
        ),
        (
            "no encryption",
            resource(json!({"authorization_servers": ["http://auth.example.com"]})),
        ),
        (
            "no address",
            resource(json!({"authorization_servers": ["auth"]})),
        ),
        (
            "another server",
            resource(json!({"resource": "https://bank.example.com/mcp"})),
        ),
        (
            "a file",
            issuer(json!({"authorization_endpoint": "file:///etc/passwd"})),
        ),
        (
            "a script",
            issuer(json!({"authorization_endpoint": "javascript:alert(1)"})),
        ),
        (
            "tokens to the network",
            issuer(json!({"token_endpoint": "https://192.168.0.1/token"})),
        ),
        (
            "another issuer",
            issuer(json!({"issuer": "https://other.example.com"})),
        ),
        (
            "no protection",
            issuer(json!({"code_challenge_methods_supported": ["plain"]})),
        ),
        (
            "silence on protection",
            issuer(json!({"code_challenge_methods_supported": null})),
        ),
        (
            "no registration",
            issuer(json!({"registration_endpoint": null})),
        ),
        ("no page", issuer(json!({"authorization_endpoint": null}))),
    ];
    for (what, rules) in cases {
        let provider = Provider::new(rules).await;
        let bench = bench(&provider).await;
        let error = sign_in(&bench).await.unwrap_err();
        told.push(format!("{what}: {}", words(&error, &provider)));
        assert_eq!(provider.ledger().count("/authorize"), 0, "{what}");
    }
    insta::assert_snapshot!(told.join("\n"), @r"
    the machine's own secrets: the sign-in is refused: http://169.254.169.254/ is not encrypted (http), which it must be
    the user's network: the sign-in is refused: https://10.0.0.1/auth is inside your own machine or network, and a server elsewhere may not send Runbridge there
    no encryption: the sign-in is refused: http://auth.example.com/ is not encrypted (http), which it must be
    no address: the sign-in is refused: `auth`, which is to sign you in, is no address
    another server: the sign-in is refused: http://PROVIDER/mcp describes itself as https://bank.example.com/mcp, which is another server
    a file: the sign-in is refused: file:///etc/passwd is no web address (https)
    a script: the sign-in is refused: javascript:alert(1) is no web address (https)
    tokens to the network: the sign-in is refused: https://192.168.0.1/token is inside your own machine or network, and a server elsewhere may not send Runbridge there
    another issuer: the sign-in is refused: the description of http://PROVIDER is that of https://other.example.com
    no protection: the sign-in is refused: http://PROVIDER does not protect the code that it sends (PKCE with S256)
    silence on protection: the sign-in is refused: http://PROVIDER does not protect the code that it sends (PKCE with S256)
    no registration: http://PROVIDER only knows clients that were registered with it: register one there, with the redirect address http://127.0.0.1:PORT/callback, and put its `client_id` and `redirect_port` under `servers.NAME.sign_in` in settings.json
    no page: the sign-in is refused: http://PROVIDER names no sign-in page
    ");
}

fn resource(resource: Value) -> Rules {
    Rules {
        resource,
        ..Rules::default()
    }
}

fn issuer(issuer: Value) -> Rules {
    Rules {
        issuer,
        ..Rules::default()
    }
}

#[tokio::test]
async fn an_answer_that_is_not_for_this_sign_in_changes_nothing() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    let signing_in = begin(&bench.catalog).unwrap();
    let url = signing_in.url().await.unwrap();
    let asked = reqwest::Url::parse(&url).unwrap();
    let redirect = asked
        .query_pairs()
        .find(|(name, _)| name == "redirect_uri")
        .unwrap()
        .1
        .into_owned();
    for forged in [
        "?code=evil",
        "?code=evil&state=guessed",
        "?error=access_denied&state=",
    ] {
        let shown = browse(&format!("{redirect}{forged}")).await;
        assert!(shown.contains("not the answer"), "{shown}");
    }
    assert!(!signing_in.paste("http://127.0.0.1/callback?code=evil&state=x"));
    assert!(browse(&url).await.contains("You are signed in."));
    signing_in.finished().await.unwrap();
}

#[tokio::test]
async fn the_answer_must_come_from_who_was_asked() {
    for (iss, supported, works) in [
        (Some("ORIGIN"), true, true),
        (Some("ORIGIN"), false, true),
        (None, false, true),
        (None, true, false),
        (Some("https://other.example.com"), true, false),
        (Some("https://other.example.com"), false, false),
    ] {
        let mut rules =
            issuer(json!({"authorization_response_iss_parameter_supported": supported}));
        rules.iss = iss;
        let provider = Provider::new(rules).await;
        let bench = bench(&provider).await;
        let outcome = sign_in(&bench).await;
        assert_eq!(outcome.is_ok(), works, "{iss:?} {supported} {outcome:?}");
        let exchanged = provider.ledger().grants("authorization_code");
        assert_eq!(exchanged, usize::from(works));
    }
}

#[tokio::test]
async fn there_is_one_browser_window_at_a_time() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    let mut other = entry(&provider);
    other.name = "other".to_owned();
    bench
        .catalog
        .set_entries(vec![entry(&provider), other])
        .await;
    let first = begin(&bench.catalog).unwrap();
    let same = begin(&bench.catalog).unwrap();
    assert_eq!(first.url().await.unwrap(), same.url().await.unwrap());
    let busy = bench.catalog.sign_in("other", ClientSettings::default());
    assert!(
        matches!(&busy, Err(SignInError::Busy { server }) if server == "fake"),
        "{:?}",
        busy.err()
    );
    drop((first, same));
    let next = bench.catalog.sign_in("other", ClientSettings::default());
    next.unwrap().url().await.unwrap();
}

#[tokio::test]
async fn who_says_no_in_the_browser_is_told_so() {
    let provider = Provider::new(Rules {
        instead_of_code: Some("access_denied"),
        ..Rules::default()
    })
    .await;
    let bench = bench(&provider).await;
    let error = sign_in(&bench).await.unwrap_err();
    assert_eq!(error.to_string(), "the sign-in was refused: access_denied");
    provider.rules().instead_of_code = None;
    provider.rules().token_status = Some(500);
    let error = sign_in(&bench).await.unwrap_err();
    insta::assert_snapshot!(words(&error, &provider), @"the sign-in could not be completed: http://PROVIDER/token answered 500 Internal Server Error");
    assert!(!bench.catalog.is_signed_in("fake").await.unwrap());
}

#[tokio::test]
async fn a_browser_elsewhere_is_helped_by_pasting_its_last_address() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    let signing_in = begin(&bench.catalog).unwrap();
    let url = signing_in.url().await.unwrap();
    let stay = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let sent_on = stay.get(&url).send().await.unwrap();
    let address = sent_on.headers()["location"].to_str().unwrap();
    assert!(signing_in.paste(address));
    signing_in.finished().await.unwrap();
    token(&bench).await;
}

#[tokio::test]
async fn missing_rights_are_named_and_asked_for_with_the_next_sign_in() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    sign_in(&bench).await.unwrap();
    let error = bench.error("admin", json!({})).await;
    assert_eq!(error.code(), "server_auth_required");
    insta::assert_snapshot!(words(&error, &provider), @"server `fake` needs you to sign in: http://PROVIDER/mcp wants more rights than your sign-in has (admin); sign in in Runbridge: choose Sign in beside the server in its window, or run `runbridge login fake`");
    token(&bench).await;
    sign_in(&bench).await.unwrap();
    assert_eq!(provider.ledger().asked()["scope"], "read write admin");
    bench.text("admin", json!({})).await;
}

#[tokio::test]
async fn clients_prove_who_they_are_as_the_server_wants_it() {
    for auth_method in ["none", "client_secret_basic", "client_secret_post"] {
        let provider = Provider::new(Rules {
            auth_method,
            ..Rules::default()
        })
        .await;
        let bench = bench(&provider).await;
        sign_in(&bench).await.unwrap();
        provider.expire();
        token(&bench).await;
    }
}

#[tokio::test]
async fn a_client_that_the_user_registered_is_used_as_it_is() {
    let provider = Provider::new(issuer(json!({"registration_endpoint": null}))).await;
    let bench = bench(&provider).await;
    let settings = ClientSettings {
        client_id: Some("known-before".to_owned()),
        scopes: vec!["mine".to_owned()],
        ..ClientSettings::default()
    };
    sign_in_as(&bench, settings).await.unwrap();
    let asked = provider.ledger().asked();
    assert_eq!(
        (&*asked["client_id"], &*asked["scope"]),
        ("known-before", "mine")
    );
    token(&bench).await;
}

#[tokio::test]
async fn a_server_that_describes_nothing_is_asked_at_the_old_places() {
    let provider = Provider::new(Rules {
        undescribed: true,
        ..Rules::default()
    })
    .await;
    let bench = bench(&provider).await;
    sign_in(&bench).await.unwrap();
    token(&bench).await;
}

#[tokio::test]
async fn signing_out_leaves_nothing_here_and_there() {
    let provider = Provider::new(Rules::default()).await;
    let bench = bench(&provider).await;
    sign_in(&bench).await.unwrap();
    token(&bench).await;
    let out = bench.catalog.sign_out("fake").await.unwrap();
    assert_eq!(out, SignedOut::Revoked);
    assert!(provider.ledger().access.is_empty());
    assert!(!provider.ledger().refresh.values().any(|used| !used));
    assert!(!bench.catalog.is_signed_in("fake").await.unwrap());
    assert_eq!(
        bench.error("echo", json!({})).await.code(),
        "server_auth_required"
    );
    let again = bench.catalog.sign_out("fake").await.unwrap();
    assert_eq!(again, SignedOut::WasNot);
}

#[tokio::test]
async fn who_needs_no_sign_in_is_told_apart() {
    let bench = Bench::one(json!({})).await;
    let error = begin(&bench.catalog).err().unwrap();
    assert!(matches!(error, SignInError::NotRemote { .. }), "{error}");
    let provider = Provider::new(Rules::default()).await;
    bench
        .catalog
        .set_entries(vec![remote(&provider.url())])
        .await;
    let error = begin(&bench.catalog).err().unwrap();
    assert!(matches!(error, SignInError::OwnHeader { .. }), "{error}");
    let error = bench.error("echo", json!({})).await;
    assert!(matches!(error, UpstreamError::SignIn { .. }), "{error}");
}

#[tokio::test]
async fn a_secret_that_an_entry_names_reaches_its_server_and_a_missing_one_is_named() {
    let provider = Provider::new(Rules::default()).await;
    let home = tempfile::tempdir().unwrap();
    let environment = Environment::new(Os::Linux, [("HOME", "/nobody")]);
    let secrets = Secrets::open(&Paths::under(home.path()), &environment);
    let sign_ins = SignIns::new(Arc::clone(&secrets), BTreeMap::new().into(), None);
    let bench = Bench::with_sign_ins(UpstreamLimits::default(), &[], sign_ins);
    let mut named = remote(&provider.url());
    if let runbridge_core::clients::entry::EntryTransport::Http { headers, .. } =
        &mut named.transport
    {
        let value = "Bearer keyring:PROVIDER".to_owned();
        headers.insert("Authorization".to_owned(), value);
    }
    bench.catalog.set_entries(vec![named]).await;
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_auth_required");
    assert!(
        error.to_string().contains("runbridge secret set PROVIDER"),
        "{error}"
    );
    let good = "a-token-of-the-user-s-own";
    provider
        .ledger()
        .access
        .insert(good.to_owned(), BTreeSet::default());
    secrets.set("PROVIDER", Secret::new(good)).await.unwrap();
    bench.catalog.restart("fake").await.unwrap();
    assert_eq!(token(&bench).await, good);
}

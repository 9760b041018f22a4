//! Questions of servers: shown in the window, answered there, and gone with their run.

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use runbridge_core::api::{
    ApiError, Change, ErrorCode, Question, QuestionAnswer, QuestionInput, QuestionWay, RunStatus,
};
use runbridge_core::questions::Answer;
use runbridge_core::request;
use runbridge_core::run::{self, Audience};
use runbridge_core::status::TrayIcon;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bench::{Before, Bench};

/// A step of a script that has the fake server ask its user.
fn asking(params: &Value) -> String {
    let arguments = json!({ "method": "elicitation/create", "params": params });
    format!("call fake ask {arguments}")
}

fn form() -> Value {
    json!({
        "message": "Which city?",
        "requestedSchema": {
            "type": "object",
            "properties": { "city": { "type": "string", "title": "City", "minLength": 2 } },
            "required": ["city"],
        },
    })
}

async fn bench() -> Bench {
    let bench = Before::default().server("fake", &json!({})).open().await;
    bench.state().await;
    bench
}

async fn question(bench: &mut Bench) -> Question {
    bench
        .hear(|change| match change {
            Change::Question { question } => Some((**question).clone()),
            _ => None,
        })
        .await
}

async fn closed(bench: &mut Bench, id: &str) {
    bench
        .hear(|change| match change {
            Change::QuestionClosed { id: closed } => (closed == id).then_some(()),
            _ => None,
        })
        .await;
}

fn accept(values: &Value) -> QuestionAnswer {
    QuestionAnswer::Accept {
        values: values.to_string(),
    }
}

fn no_page(page: &str) -> Result<(), ApiError> {
    panic!("{page} was to be opened")
}

#[tokio::test]
async fn a_form_is_shown_held_to_its_bounds_and_answered() {
    let mut bench = bench().await;
    let id = bench.desk.run_code(asking(&form())).unwrap();
    let asked = question(&mut bench).await;
    assert_eq!(
        (asked.server.as_str(), asked.message.as_str()),
        ("fake", "Which city?")
    );
    assert_eq!((&asked.run_id, asked.client.as_str()), (&id, "runbridge"));
    assert_eq!(asked.expires_at - asked.asked_at, 300_000);
    let QuestionWay::Form { fields } = &asked.way else {
        panic!("{:?}", asked.way)
    };
    assert!(matches!(
        &fields[0].input,
        QuestionInput::Text { chars_min: 2, .. }
    ));
    assert_eq!(
        (fields[0].label.as_str(), fields[0].required),
        ("City", true)
    );
    assert_eq!(bench.state().await.questions, std::slice::from_ref(&asked));
    let mut status = bench.desk.status();
    let seen = status.wait_for(|status| status.askers == ["fake"]).await;
    assert_eq!(seen.unwrap().icon(), TrayIcon::Attention);

    // What does not fit leaves it open.
    for (answer, why) in [
        (accept(&json!({ "city": "x" })), "at least 2 characters"),
        (accept(&json!({})), "“City” needs a value"),
        (accept(&json!([])), "no JSON object"),
    ] {
        let error = bench.desk.answer_question(&asked.id, answer, no_page);
        let error = error.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArguments);
        assert!(error.message.contains(why), "{}", error.message);
    }
    let answer = accept(&json!({ "city": "Paris" }));
    let answered = bench
        .desk
        .answer_question(&asked.id, answer.clone(), no_page);
    answered.unwrap();
    closed(&mut bench, &asked.id).await;
    let run = bench.ended(&id).await;
    assert_eq!(run.run.status, RunStatus::Success);
    assert!(
        run.stdout
            .contains(r#""action":"accept","content":{"city":"Paris"}"#),
        "{}",
        run.stdout
    );
    let error = bench.desk.answer_question(&asked.id, answer, no_page);
    assert_eq!(error.unwrap_err().code, ErrorCode::QuestionNotFound);
    assert!(bench.state().await.questions.is_empty());
    bench.close().await;
}

#[tokio::test]
async fn a_question_is_declined_dismissed_and_gone_with_its_run() {
    let mut bench = bench().await;
    for (answer, action) in [
        (QuestionAnswer::Decline, "decline"),
        (QuestionAnswer::Dismiss, "cancel"),
    ] {
        let id = bench.desk.run_code(asking(&form())).unwrap();
        let asked = question(&mut bench).await;
        let answered = bench.desk.answer_question(&asked.id, answer, no_page);
        answered.unwrap();
        let run = bench.ended(&id).await;
        let said = format!(r#""action":"{action}""#);
        assert!(run.stdout.contains(&said), "{}", run.stdout);
    }
    let id = bench.desk.run_code(asking(&form())).unwrap();
    let asked = question(&mut bench).await;
    bench.desk.stop_run(&id).unwrap();
    closed(&mut bench, &asked.id).await;
    let error = bench
        .desk
        .answer_question(&asked.id, QuestionAnswer::Decline, no_page);
    assert_eq!(error.unwrap_err().code, ErrorCode::QuestionNotFound);
    bench.close().await;
}

#[tokio::test]
async fn a_page_is_opened_only_once_the_user_agrees() {
    let mut bench = bench().await;
    let page = "https://bank.example/confirm?id=7";
    let params = json!({ "mode": "url", "message": "Confirm", "url": page, "elicitationId": "7" });
    let id = bench.desk.run_code(asking(&params)).unwrap();
    let asked = question(&mut bench).await;
    let way = QuestionWay::Page {
        url: page.to_owned(),
        host: "bank.example".to_owned(),
    };
    assert_eq!(asked.way, way);
    let mut opened = Vec::new();
    let refused = bench
        .desk
        .answer_question(&asked.id, accept(&json!({})), |page| {
            opened.push(page.to_owned());
            Err(ApiError::new(ErrorCode::Internal, "there is no browser"))
        });
    // It waits on, and its user can try again.
    assert_eq!(refused.unwrap_err().message, "there is no browser");
    let answered = bench
        .desk
        .answer_question(&asked.id, accept(&json!({})), |page| {
            opened.push(page.to_owned());
            Ok(())
        });
    answered.unwrap();
    assert_eq!(opened, [page, page]);
    let run = bench.ended(&id).await;
    assert!(
        run.stdout.contains(r#"{"action":"accept"}"#),
        "{}",
        run.stdout
    );
    bench.close().await;
}

#[tokio::test]
async fn a_form_that_cannot_be_shown_is_refused_with_the_reason() {
    let mut bench = bench().await;
    let mut params = form();
    params["requestedSchema"]["properties"]["nested"] = json!({ "type": "object" });
    let run = bench.run(&asking(&params)).await;
    assert!(
        run.stdout
            .contains("its form has a field `nested` of a kind that cannot be shown"),
        "{}",
        run.stdout
    );
    bench.close().await;
}

#[tokio::test]
async fn the_time_of_a_run_stands_still_while_its_user_thinks() {
    let bench = bench().await;
    let connection = bench.bridge.connect();
    let thinks = Duration::from_secs(3);
    let run = async |code: String| {
        let arguments = [("code".to_owned(), json!(code))].into_iter().collect();
        let request = request::parse(arguments, 2, 120).unwrap();
        let audience = Audience {
            report: None,
            ask: Some(std::sync::Arc::new(move |_| {
                async move {
                    tokio::time::sleep(thinks).await;
                    Ok(Answer::Declined)
                }
                .boxed()
            })),
        };
        let cancel = CancellationToken::new();
        let (bridge, client) = (&bench.bridge, Some("tester"));
        run::run_python(bridge, &connection, client, request, cancel, audience, None).await
    };
    let began = Instant::now();
    let reply = run(asking(&form())).await;
    assert!(began.elapsed() >= thinks);
    assert!(reply.text.contains("decline"), "{}", reply.text);
    // What the run takes for itself counts as before.
    let began = Instant::now();
    let reply = run(asking(&form()) + "\nwait").await;
    assert!(reply.text.contains("timed out after 2 s"), "{}", reply.text);
    assert!(began.elapsed() >= thinks);
    bench.bridge.disconnect(&connection).await;
    bench.close().await;
}

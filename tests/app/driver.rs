//! The window of a running app in a test's hands, through the webview's own driver: what is on the
//! screen is found by what it says and clicked where it is.

use std::process::{Child, Stdio};
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use runbridge_testkit::wait_for;
use serde_json::{Value, json};

use crate::app::{Desk, app, terminate, until};
use crate::screen::PATIENCE;

/// The window, and the driver that started its app.
pub(crate) struct Window {
    client: Client,
    driver: Child,
}

impl Window {
    /// Start the app with its window.
    pub(crate) async fn open(desk: &Desk) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let log = std::fs::File::create(desk.home.join("app.log")).unwrap();
        let mut driver = desk
            .command("WebKitWebDriver")
            .arg(format!("--port={port}"))
            .env("TAURI_AUTOMATION", "true")
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("WebKitWebDriver is missing: run `cargo xtask setup`");
        let listens = wait_for(PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        assert!(listens.is_some(), "the driver does not listen");
        let options = json!({ "webkitgtk:browserOptions": { "binary": app(), "args": [] } });
        let connected = ClientBuilder::new(HttpConnector::new())
            .capabilities(options.as_object().unwrap().clone())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await;
        let client = connected.unwrap_or_else(|error| {
            let _ = driver.kill();
            panic!("the window did not open: {error}\n{}", desk.log())
        });
        desk.wait_until_served();
        Self { client, driver }
    }

    /// Wait for an element.
    pub(crate) async fn find(&self, xpath: &str) -> Element {
        let waiting = self
            .client
            .wait()
            .at_most(PATIENCE)
            .every(Duration::from_millis(50));
        match waiting.for_element(Locator::XPath(xpath)).await {
            Ok(element) => element,
            Err(error) => panic!("{xpath}: {error}\non the screen:\n{}", self.text().await),
        }
    }

    /// Click a button, a tab or a row by what it says.
    pub(crate) async fn press(&self, label: &str) {
        self.click(&button(label)).await;
    }

    /// Click where an element is. What is drawn anew at that moment is found again.
    pub(crate) async fn click(&self, xpath: &str) {
        let mut tries = 0;
        while let Err(error) = self.find(xpath).await.click().await {
            tries += 1;
            assert!(tries < 20, "{xpath}: {error}\n{}", self.text().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Put a text in place of what a field holds.
    pub(crate) async fn fill(&self, xpath: &str, text: &str) {
        let field = self.find(xpath).await;
        field.click().await.unwrap();
        let all = char::from(Key::Control).to_string() + "a" + &char::from(Key::Null).to_string();
        field.send_keys(&all).await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Wait until a text is on the screen.
    pub(crate) async fn says(&self, text: &str) {
        self.find(&format!("//*[text()[contains(., {})]]", quoted(text)))
            .await;
    }

    /// Wait until an element is gone.
    pub(crate) async fn gone(&self, xpath: &str) {
        let end = std::time::Instant::now() + PATIENCE;
        while self.client.find(Locator::XPath(xpath)).await.is_ok() {
            assert!(
                std::time::Instant::now() < end,
                "{xpath} stays\n{}",
                self.text().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Press a key on an element, so often.
    pub(crate) async fn keys(&self, xpath: &str, key: Key, times: usize) {
        let keys: String = std::iter::repeat_n(char::from(key), times).collect();
        self.find(xpath).await.send_keys(&keys).await.unwrap();
    }

    /// All that is written on the screen.
    pub(crate) async fn text(&self) -> String {
        let script = "return document.body.innerText";
        let text = self.client.execute(script, Vec::new()).await;
        text.map_or_else(
            |error| error.to_string(),
            |text| text.as_str().unwrap_or_default().to_owned(),
        )
    }

    /// What a script of the page gives.
    pub(crate) async fn script(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Send a command as the window does; its result, or its error.
    pub(crate) async fn invoke(&self, command: &str, arguments: Value) -> Result<Value, Value> {
        let script = "const [command, args, done] = arguments;
            window.__TAURI_INTERNALS__.invoke(command, args)
              .then((ok) => done({ ok }), (error) => done({ error }))";
        let mut answer = self
            .client
            .execute_async(script, vec![json!(command), arguments])
            .await
            .unwrap();
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["ok"].take()),
        }
    }

    /// End the app in order, then the driver, which would only kill it.
    pub(crate) async fn end(mut self, desk: &Desk) {
        for process in desk.processes_named("/runbridge-app") {
            let pid = process.split([' ', ':']).nth(1).unwrap();
            terminate(pid.parse().unwrap());
        }
        until("the app has ended", || {
            desk.processes_named("/runbridge-app").is_empty()
        });
        // There is no window left to close.
        let _ = self.client.close().await;
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A button with this text, or this name.
pub(crate) fn button(label: &str) -> String {
    let label = quoted(label);
    format!(
        "//*[self::button or @role='tab'][normalize-space()={label} or @aria-label={label} or \
         .//*[normalize-space()={label}]]"
    )
}

/// An input with this name.
pub(crate) fn input(kind: &str, label: &str) -> String {
    format!("//input[@type='{kind}' and @aria-label={}]", quoted(label))
}

fn quoted(text: &str) -> String {
    assert!(!text.contains('"'), "{text}");
    format!("\"{text}\"")
}

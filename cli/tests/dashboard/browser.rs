//! Headless Chromium, over its DevTools protocol.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use fiber_test_support::wait::{LONG, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Returns the browser's executable.
pub(crate) fn executable() -> Option<&'static str> {
    let starts = |name: &&str| {
        let mut version = Command::new(name);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    ["chromium", "google-chrome", "chromium-browser"].into_iter().find(starts)
}

/// A browser with one page. It is killed when this is dropped.
pub(crate) struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    page: String,
    next: u64,
    problems: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn open(address: &str) -> Browser {
        let profile = TempDir::new().expect("a directory can be created");
        let mut process = Command::new(executable().expect("the test is skipped without it"))
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"])
            .args(["--no-first-run", "--disable-dev-shm-usage", "--window-size=1280,1000"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-extensions", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium starts");
        let mut lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        let endpoint = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("DevTools listening on ")?.to_string()))
            .expect("chromium names its endpoint");
        // It must not wait for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let (socket, _) = tungstenite::connect(endpoint).expect("chromium accepts connections");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(LONG)).expect("it is a socket");
        }
        let (page, problems) = (String::new(), Vec::new());
        let mut browser = Browser { process, socket, page, next: 0, problems, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", target);
        browser.page = session["sessionId"].as_str().expect("it has one").to_string();
        browser.call("Runtime.enable", json!({}));
        browser.go_to(address);
        browser
    }

    pub(crate) fn go_to(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// Calls a method, and returns its result.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut request = json!({ "id": self.next, "method": method, "params": parameters });
        if !self.page.is_empty() {
            request["sessionId"] = self.page.clone().into();
        }
        self.socket.send(Message::text(request.to_string())).expect("chromium reads");
        loop {
            let message = self.socket.read().expect("chromium answers");
            let Ok(text) = message.to_text() else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(text) else { continue };
            if answer["method"] == "Runtime.exceptionThrown" {
                self.problems.push(answer["params"]["exceptionDetails"].to_string());
            }
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Returns the errors of the page's scripts.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    /// Returns the value of an expression; null if it throws.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", parameters)["result"]["value"].clone()
    }

    pub(crate) fn run(&mut self, expression: &str) {
        self.value(expression);
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_string()
    }

    /// Gives the page the size of another screen, in pixels of CSS.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", screen);
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, condition: &str) {
        wait_for(condition, || match self.value(condition) == true {
            true => Ok(()),
            false => Err((self.problems.clone(), self.value("document.body.innerText"))),
        });
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let code = match key {
                "Enter" => 13,
                "End" => 35,
                _ => 39,
            };
            let mut event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

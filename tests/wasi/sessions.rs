//! Many sessions at once, and what one costs.

use std::time::Duration;

use crate::session::{Session, private_mib, workers};

const MANY: usize = 40;
const PRIVATE_MIB_MAX: f64 = 6.0;

#[tokio::test]
async fn many_idle_sessions_take_little_memory_and_a_busy_one_keeps_nobody_waiting() {
    let mut sessions = Vec::new();
    for number in 0..MANY {
        let mut session = Session::start().await;
        session.run(&format!("kept = {number}")).await;
        sessions.push(session);
    }
    // Other tests may have workers in this process; the usual one is an idle one of these.
    let mut private: Vec<f64> = workers().into_iter().filter_map(private_mib).collect();
    private.sort_by(f64::total_cmp);
    assert!(
        private.len() >= MANY,
        "{} of {MANY} were measured",
        private.len()
    );
    let usual = private[private.len() / 2];
    assert!(
        usual <= PRIVATE_MIB_MAX,
        "an idle session takes {usual} MiB"
    );

    let busy = sessions.split_off(MANY - 2).into_iter().map(|mut session| {
        tokio::spawn(async move {
            session.run_for("while True: pass", 3_000).await;
            session.run("kept").await.value().to_owned()
        })
    });
    let busy: Vec<_> = busy.collect();
    let mut times = Vec::new();
    for (number, session) in sessions.iter_mut().enumerate() {
        let ran = session.run("kept").await;
        assert_eq!(ran.value(), number.to_string());
        times.push(ran.took);
    }
    times.sort();
    let usual = times[times.len() / 2];
    assert!(
        usual < Duration::from_secs(1),
        "{usual:?} beside a busy one"
    );
    for (number, value) in busy.into_iter().enumerate() {
        assert_eq!(value.await.unwrap(), (MANY - 2 + number).to_string());
    }
    for session in sessions {
        session.end().await;
    }
}

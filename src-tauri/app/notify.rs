//! The system's notifications: what needs the user, said once. It decides what is news; how it looks
//! is the system's.

use std::collections::BTreeSet;

use runbridge_core::api::{ApiError, Attention, Question, Run, RunStatus};
use tauri::AppHandle;
use tauri_plugin_notification::NotificationExt as _;

/// What the user has been told.
#[derive(Default)]
pub(crate) struct Told {
    attention: BTreeSet<String>,
}

/// One notification.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct News {
    title: String,
    body: String,
}

impl Told {
    /// What of `attention` is news. What is gone may come again and is news then.
    pub(crate) fn news_of(&mut self, attention: &[Attention]) -> Vec<News> {
        let now: BTreeSet<String> = attention.iter().map(|one| one.id.clone()).collect();
        let news = attention
            .iter()
            .filter(|one| !self.attention.contains(&one.id))
            .map(|one| News {
                title: one.error.message.clone(),
                body: one.error.hint.clone().unwrap_or_default(),
            })
            .collect();
        self.attention = now;
        news
    }
}

/// That a server asks something, and where to answer. Its words stay in the window: they may be
/// personal, and some systems would read markup in them.
pub(crate) fn news_of_question(question: &Question) -> News {
    News {
        title: format!("{} asks you something", question.server),
        body: format!(
            "A run of {} waits for your answer. Open Runbridge to give it.",
            question.client
        ),
    }
}

/// Whether the end of a run is news: only if one of our limits ended it.
pub(crate) fn news_of_run(run: &Run) -> Option<News> {
    let limit = match run.status {
        RunStatus::Timeout => "took too long",
        RunStatus::OutOfMemory => "used too much memory",
        _ => return None,
    };
    Some(News {
        title: format!("A run of {} {limit}", run.client),
        body: format!(
            "“{}” was stopped. The limit can be changed in Runbridge under Sandbox.",
            run.title
        ),
    })
}

/// That something which was asked for in the tray is not to be had.
pub(crate) fn refused(error: &ApiError) -> News {
    News {
        title: error.message.clone(),
        body: error.hint.clone().unwrap_or_default(),
    }
}

/// Show it. Nobody may be there to show it to, which is no trouble.
pub(crate) fn show(app: &AppHandle, news: News) {
    let notification = app
        .notification()
        .builder()
        .title(news.title)
        .body(news.body);
    if let Err(error) = notification.show() {
        tracing::debug!("a notification was not shown: {error}");
    }
}

#[cfg(test)]
mod tests {
    use runbridge_core::api::{ErrorCode, Level, Subject};

    use super::*;

    fn attention(id: &str) -> Attention {
        Attention {
            id: id.to_owned(),
            level: Level::Warning,
            error: ApiError {
                code: ErrorCode::ServerAuthRequired,
                message: format!("{id} wants you to sign in"),
                hint: None,
                log_id: None,
            },
            subject: Subject::Settings,
        }
    }

    #[test]
    fn each_trouble_is_told_once_until_it_is_gone() {
        let mut told = Told::default();
        let titles = |news: Vec<News>| news.into_iter().map(|one| one.title).collect::<Vec<_>>();
        assert_eq!(
            titles(told.news_of(&[attention("mail")])),
            ["mail wants you to sign in"]
        );
        assert_eq!(
            titles(told.news_of(&[attention("mail"), attention("files")])),
            ["files wants you to sign in"]
        );
        assert!(told.news_of(&[]).is_empty());
        assert_eq!(told.news_of(&[attention("mail")]).len(), 1);
    }
}

//! Questions of servers, answered in a window.

use serde_json::Value;

use super::{Answer, Desk};
use crate::api::{ApiError, ErrorCode, QuestionAnswer};
use crate::questions::{self, NotTaken};

impl Desk {
    /// Answer what a server asks. If the answer is to open its page, `open` does that first; when it
    /// cannot, the question goes on waiting.
    pub fn answer_question(
        &self,
        id: &str,
        answer: QuestionAnswer,
        open: impl FnOnce(&str) -> Answer<()>,
    ) -> Answer<()> {
        let questions = self.0.bridge.open_questions();
        let taken = match answer {
            QuestionAnswer::Accept { values } => {
                let Ok(Value::Object(values)) = serde_json::from_str(&values) else {
                    return Err(unfit("the values are no JSON object".to_owned()));
                };
                if let Some(page) = questions.page(id) {
                    open(&page)?;
                }
                questions.accept(id, values)
            }
            QuestionAnswer::Decline => questions.answer(id, questions::Answer::Declined),
            QuestionAnswer::Dismiss => questions.answer(id, questions::Answer::Cancelled),
        };
        taken.map_err(|error| match error {
            NotTaken::Gone => ApiError::new(
                ErrorCode::QuestionNotFound,
                "nobody waits for this answer any more",
            ),
            NotTaken::Unfit(problem) => unfit(problem),
        })
    }
}

fn unfit(problem: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidArguments, problem)
}

//! A toolset whose tools depend on the user's message.

use hatchery_guest::prelude::*;
use hatchery_guest::{DynamicTool, ToolsetExport};

/// Bakes bread.
#[tool]
async fn bake() -> &'static str {
    "baked"
}

/// One tool for each word of the user's message that begins with a capital letter, and one that is always there.
pub fn trades() -> ToolsetExport {
    ToolsetExport::new("trades", async |cx: Context| {
        if let Err(error) = cx.set_state("asked", true) {
            log::info(error.code, &[]);
        }
        let message = cx.user_content()?.text();
        let words = message.split(' ').filter(|word| word.starts_with(|letter: char| letter.is_ascii_uppercase()));
        let tool = |word: &str| {
            let name = word.to_lowercase();
            let answer = name.clone();
            DynamicTool::new(name, "Works.", move |args, cx: ToolContext| {
                let answer = answer.clone();
                async move {
                    cx.set_state("worked", answer.clone())?;
                    Ok(json!({ "said": answer, "args": args }))
                }
            })
        };
        Ok(words.map(tool).chain([bake().into()]).collect())
    })
}

/// Has the tools of the toolset.
#[agent]
pub fn foreman() -> LlmAgent {
    LlmAgent::new("foreman").model("scripted:services.yaml").toolset("trades")
}

//! Models: their names, and embeddings.

use hatchery_guest::prelude::*;

/// A comparison of texts.
#[derive(Deserialize, JsonSchema)]
pub struct Comparison {
    /// The embedder; `list` lists the models that the component is granted.
    model: String,
    /// Two texts.
    texts: Vec<String>,
}

/// Compares two texts by their embeddings: 1 for the same spelling.
#[tool]
pub async fn compare(comparison: Comparison, cx: ToolContext) -> Result<Value, Error> {
    if comparison.model == "list" {
        return Ok(json!(cx.models()?));
    }
    let vectors = cx.embed(comparison.model, comparison.texts).await?;
    match vectors.as_slice() {
        [one, other] => Ok(json!(one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>())),
        other => Ok(json!(other.len())),
    }
}

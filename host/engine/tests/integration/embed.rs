//! The example program that embeds the engine.

#[allow(dead_code)]
#[path = "../../examples/embed.rs"]
mod example;

async fn run_example(model: Option<&str>) -> Result<String, String> {
    let mut out = Vec::new();
    let result = example::run_turn(model, "Please count: a rose is a rose", &mut out).await;
    result.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_example_streams_a_call_its_answer_and_a_text() {
    let output = run_example(None).await.unwrap();
    assert_eq!(
        output,
        "→ count_words({\"text\":\"a rose is a rose\"})\n← count_words {\"result\":5}\nThese are 5 words.\n"
    );
}

#[tokio::test]
async fn the_example_lists_the_models_in_its_error() {
    let error = run_example(Some("parrot")).await.unwrap_err();
    assert!(error.starts_with("model `parrot`: no provider serves this name; known names: "), "{error}");
}

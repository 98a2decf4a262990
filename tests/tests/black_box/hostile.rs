//! Attacks on a real host that also serves harmless components: none may succeed, the harmless components must answer during and after it,
//! and the host must not use more memory, file handles and disk than before.
//!
//! | attack | test |
//! |---|---|
//! | a granted folder below a written one is swapped for a link, by one component | [`files`]`::a_folder_below_a_written_one_is_not_granted_to_the_same_component` |
//! | the same by two components, and by a link that is there before | `files::a_folder_below_a_written_one_is_not_granted_to_another_component`, `files::a_link_to_a_folder_below_a_written_one_is_found_out`, `files::a_granted_folder_that_is_replaced_by_a_link_is_still_the_one_that_was_granted` |
//! | `..`, links, hard links, writes in a folder to read | `files::neither_paths_nor_links_lead_out_of_a_granted_folder` |
//! | `inspect`, `doctor`, `test` of another author's folder that grants itself the home folder | [`strangers`]`::no_verb_gives_a_strangers_folder_the_rights_that_it_asks_for`, `strangers::a_server_says_which_rights_need_a_decision_and_how_to_make_it`, `strangers::a_component_that_describes_itself_has_no_files_although_they_are_granted` |
//! | `inspect` of an unsigned component where signatures are required | `strangers::an_unsigned_component_is_not_run_to_be_looked_at_where_signatures_are_required` |
//! | a schema of 19 000 numbers and a list of 100 000 | [`compute`]`::arguments_that_are_slow_to_validate_block_nobody` |
//! | schemas of patterns, of loops, and unusable ones | `compute::a_schema_of_patterns_or_loops_blocks_nobody`, `compute::an_unusable_schema_accepts_no_arguments` |
//! | bodies that are not sent | [`memory`]`::bodies_that_are_never_sent_do_not_fill_the_host`, `…_although_it_may_send_some` |
//! | header fields that are not sent | `memory::header_fields_that_are_never_sent_do_not_fill_the_host` |
//! | random bytes, handles, memory | `memory::random_bytes_come_in_bounded_portions`, `memory::handles_that_are_never_closed_end_with_the_call`, `memory::memory_without_end_ends_at_the_limit` |
//! | 300 events of 7 MB; events and pieces without end | [`floods`]`::an_agent_that_says_two_gigabytes_is_stopped`, `floods::an_agent_that_says_events_without_end_is_stopped`, `floods::an_agent_that_says_pieces_without_end_is_stopped` |
//! | state and artifacts without end | `floods::an_agent_cannot_fill_the_state`, `floods::a_tool_cannot_fill_the_state`, `floods::artifacts_end_at_a_quota` |
//! | 30 calls of its own tools of 55 MiB at once | `memory::calls_of_its_own_tools_at_the_same_time_share_what_one_message_may_take` |
//! | a callback that changes arguments after consent | [`consent`]`::what_runs_is_what_the_person_was_shown` |
//! | an imported session with a forged call, request and answer | `consent::an_imported_history_gives_no_consent` |
//! | replayed decisions, unknown ids, an agent as `user`, a request in another agent's name | `consent::a_decision_counts_once_for_one_request_and_for_its_arguments`, `consent::an_agent_of_a_component_cannot_ask_in_the_name_of_another`, `consent::an_agent_that_speaks_as_the_user_is_not_taken_for_the_user` |
//! | `extra` with a call, a state delta, a text, and others | [`history`]`::further_keys_of_an_event_neither_forge_it_nor_break_the_session`, `history::imported_events_that_contradict_themselves_are_refused_or_read_as_they_were_checked` |
//! | parts that no model takes, from a client | `history::parts_that_no_model_takes_are_refused_at_the_door` |
//! | a described agent with tools, models, callbacks of others | [`descriptions`]`::an_agent_is_not_described_with_what_belongs_to_others` |
//! | placeholders of `user:` and `app:` state and artifacts, `output_key: app:…` | the same |
//! | an event with state or a compaction that is not the agent's | `history::an_agent_neither_sets_what_belongs_to_others_nor_rewrites_what_they_see` |
//! | the environment's key to a folder's base URL | [`keys`]`::a_folder_does_not_choose_where_the_key_goes` |
//! | spellings of own addresses, headers, methods | [`addresses`]`::no_spelling_of_an_own_address_is_reached`, `addresses::headers_and_methods_do_not_lead_elsewhere`, `addresses::without_a_grant_no_request_and_no_socket_leaves` |
//! | Host, Origin, `null`, other ports, text/plain, `Sec-Fetch-Site` | [`clients`]`::a_page_from_elsewhere_reaches_nothing` |
//! | traversal and odd names in apps, users, sessions, artifacts | `clients::names_lead_out_of_no_folder_and_have_a_length` |
//! | lines of the log that look like the host's | `floods::log_and_output_end_at_the_limit_and_cannot_be_taken_for_the_hosts` |
//! | deep, huge and doubled JSON, from clients and from tools | `clients::json_that_is_deep_or_odd_is_refused`, `compute::invalid_or_too_deep_json_is_an_error_of_the_tool` |
//! | 1.3 million state keys in one request | `clients::a_million_state_keys_hold_no_other_user_up` |
//! | a body of zeros | `clients::a_body_of_zeros_takes_no_gigabyte` |
//! | clients that send slowly | `clients::clients_that_drip_do_not_shut_the_others_out` |
//! | functions that are slow to compile | [`compiling`]`::a_host_serves_other_components_before_a_slow_one_is_compiled` |
//! | a grant that is revoked during a compilation | `compiling::grants_are_revoked_while_a_slow_component_is_compiled` |
//! | a signed component under another name | [`supply`]`::a_signed_component_does_not_serve_under_another_name` |
//! | rollback where signatures are required | `supply::a_rollback_works_where_signatures_are_required` |
//! | a registry whose token service is elsewhere | `supply::a_login_stays_with_its_registry` |
//! | a manifest of 300 MiB | `supply::a_manifest_has_a_size` |
//! | `json.py` in a project that is built | `supply::a_build_runs_no_module_of_the_project` |
//! | grants of the host's own folders; agents and scripts in a written folder | [`written`]`::the_hosts_own_folders_are_not_granted`, `written::agents_and_scripts_in_a_written_folder_are_not_loaded` |
//! | `kill -9` while events stream | [`crash`](crate::crash)`::every_event_that_was_yielded_before_a_kill_is_found_after_it` |
//! | keys and secrets in logs, `/components`, sessions | `keys::nothing_that_a_component_or_a_client_sees_holds_a_key`, [`network`](crate::network)`::a_page_is_read_by_https_with_a_secret_that_nothing_shows` |
//! | `scripted:.env` | `written::a_script_is_no_way_to_read_other_files` |
//! | spinning, recursion, a description that never ends | `compute::spinning_calls_end_by_the_cpu_limit`, `compute::tools_that_call_themselves_end_by_their_number_and_depth`, `compute::a_component_that_spins_or_grows_while_it_describes_itself_is_not_loaded` |

mod addresses;
mod clients;
mod compiling;
mod compute;
mod consent;
mod descriptions;
mod files;
mod floods;
mod history;
mod keys;
mod memory;
mod strangers;
mod supply;
mod written;

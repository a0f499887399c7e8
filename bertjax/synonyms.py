"""Maps the names of transformers, fairseq and the originals' flags to our keys."""

# Our key, with what differs -> the names that others have for it.
NAMES = {
  'optimizer.schedule.peak': 'learning_rate lr peak_lr max_lr base_lr peak',
  'optimizer.schedule.warmup_steps, in steps': """warmup_steps num_warmup_steps warmup_updates
    warmup warmup_ratio warmup_proportion warmup_init_steps""",
  'optimizer.schedule.name': 'lr_scheduler lr_scheduler_type scheduler lr_decay_style',
  'optimizer.name': 'optim optimizer_name',
  'optimizer.b1': 'adam_beta1 beta1 beta_1',
  'optimizer.b2': 'adam_beta2 beta2 beta_2',
  'optimizer.eps': 'adam_epsilon adam_eps epsilon',
  'optimizer.weight_decay': 'weight_decay wd weight_decay_rate',
  'optimizer.clip': 'max_grad_norm clip_norm gradient_clip_norm gradient_clip_val clip_grad',
  'total_steps': 'max_steps num_train_steps train_steps num_steps steps max_update train_iters',
  'epochs': 'num_train_epochs num_epochs max_epoch max_epochs n_epochs',
  'batch_size, rows of a step over all devices': """batch_size train_batch_size global_batch_size
    per_device_train_batch_size per_gpu_train_batch_size per_device_batch_size micro_batch_size""",
  'microbatches, parts that a step of config.batch_size rows is divided into': """
    gradient_accumulation_steps accumulate_grad_batches update_freq grad_accum_steps""",
  'length': """max_seq_length max_seq_len max_length seq_length seq_len sequence_length block_size
    tokens_per_sample model_max_length""",
  'log_steps': 'logging_steps log_interval log_every_n_steps log_every',
  'eval_steps': 'evaluation_steps eval_interval val_check_interval eval_every',
  'checkpoint_steps': 'save_steps save_checkpoints_steps save_interval checkpoint_interval',
  'keep_checkpoints': 'save_total_limit keep_last_epochs keep_checkpoint_max max_to_keep',
  'seed': 'random_seed data_seed',
  'init_from': """init_checkpoint model_name_or_path pretrained_model_name_or_path restore_file
    finetune_from_model""",
  'best.metric': 'metric_for_best_model best_checkpoint_metric',
  'best.patience': 'early_stopping_patience patience',
  'trackers': 'report_to',
  'model.dtype': 'fp16 bf16 precision mixed_precision torch_dtype dtype',
  'model.remat': 'gradient_checkpointing activation_checkpointing',
  'model.width': 'hidden_size d_model n_embd hidden_dim encoder_embed_dim embed_dim',
  'model.layers': 'num_hidden_layers num_layers n_layers n_layer encoder_layers',
  'model.heads': """num_attention_heads num_heads n_heads n_head
    encoder_attention_heads""",
  'model.ffn': 'intermediate_size d_ff dim_feedforward n_inner encoder_ffn_embed_dim ffn_dim',
  'model.positions': 'max_position_embeddings n_positions max_positions max_source_positions',
  'model.vocab_size, which the vocabulary sets': 'vocab_size n_vocab vocabulary_size',
  'model.types': 'type_vocab_size',
  'model.activation': 'hidden_act activation_function activation_fn',
  'model.dropout': 'hidden_dropout_prob hidden_dropout resid_pdrop dropout',
  'model.attention_dropout': 'attention_probs_dropout_prob attn_dropout attn_pdrop',
  'model.head_dropout': 'classifier_dropout',
  'model.norm_eps': 'layer_norm_eps layer_norm_epsilon',
  'model.init_std': 'initializer_range',
  'model.embedding_width': 'embedding_size',
  'data.mask.rate': 'mlm_probability masked_lm_prob mask_prob mlm_prob',
  'data.mask.whole_word': 'do_whole_word_mask whole_word_mask mask_whole_words',
  'data.mask.max_targets': 'max_predictions_per_seq',
  'data.plan.short_prob': 'short_seq_prob',
  'data.task.stride': 'doc_stride',
  'data.task.question': 'max_query_length',
  'data.task.classes': 'num_labels num_classes label_list id2label',
  'data.vocab': 'vocab_file tokenizer tokenizer_name tokenizer_name_or_path vocab',
  'data.lowercase': 'do_lower_case lower_case',
  'data.train': 'train_file train_data training_data',
  'data.dev': 'validation_file dev_file eval_file valid_data',
  'data.input': 'input_file data_path data_dir dataset dataset_name corpus input',
  'data.examples': 'max_train_samples',
  'data.threads': 'dataloader_num_workers num_workers',
}  # fmt: skip
_OURS = {name: key for key, names in NAMES.items() for name in names.split()}


def hint(name: str) -> str:
  """Returns the end of a message about a key that is not ours: which is; '' if it is not known."""
  key = ours(name)
  return key and f'; here it is {key}'


def ours(name: str) -> str:
  """Returns our key of the config for what others call `name`, '' if it is not known."""
  key = _OURS.get(name.lower().replace('-', '_').rpartition('.')[2], '')
  return key and f'config.{key}'

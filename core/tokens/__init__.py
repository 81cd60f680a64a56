"""What the encoder reads: transcripts as token ids, in the input format that its tokenizer has the marks for."""

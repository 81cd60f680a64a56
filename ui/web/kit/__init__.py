"""What every page uses: state and addresses, figures, text blocks, small widgets."""

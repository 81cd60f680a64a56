"""An evolution: the form that begins it, its generations, its heads."""

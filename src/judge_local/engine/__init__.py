"""The engine: llama.cpp in a worker process, and the client that talks to it; the only folder that imports llama_cpp."""
